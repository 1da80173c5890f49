import json
import tarfile

from tests.agent.history.test_round_trip import header, ticks

from chipwatch.commands import bundle
from chipwatch.config.options import Config
from chipwatch.history.event import Event
from chipwatch.history.ring import Ring


def test_the_newest_incident_is_packed_without_names_and_with_its_numbers(tmp_path):
    ring, written = Ring(tmp_path, 60.0, header), [*ticks(3)]
    for at, points in written:
        ring.add(points, at)
    ring.seal(Event(written[-1][0], "xid", "ada@example.com had Xid 79"), written[-1][0])
    ring.close()
    bundle.pack(tmp_path / "a.tar.gz", Config(spool=tmp_path), [], {"node-7": "hostname"})
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        (name,) = (name for name in archive.getnames() if "incident" in name)
        lines = [json.loads(line) for line in archive.extractfile(name).read().splitlines()]
    assert name == "chipwatch/incident-20261120T100007Z-xid.jsonl"
    assert lines[1]["event"]["text"] == "<user> had Xid 79"
    rows = [line["row"] for line in lines if "row" in line]
    assert len(rows) == 3
    assert {point.value for point in written[-1][1]} <= {*rows[-1]}
