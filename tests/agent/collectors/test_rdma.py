import shutil

import pytest
from tests.doubles import sysfs
from tests.doubles.ethtool import Card
from tests.told import reading

from chipwatch.collectors.rdma import RdmaCollector
from chipwatch.contract.datapoint import Dimensions, Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector

CAPTURES = ("rdma_mlx5", "rdma_efa", "rdma_irdma", "rdma_bnxt_re", "rdma_hfi1", "rdma_i40iw_mlx4", "rdma_ionic")


@pytest.fixture
def clock():
    """A monotonic clock of `clock[0]` seconds, set by the test."""
    return [1000.0]


@pytest.fixture
def rdma(tmp_path, clock):
    """Make a collector that reads the captures, opened."""

    def made(*captures, level=Level.ALL, **config):
        sysfs.build(tmp_path / "sys", *captures)
        collector = RdmaCollector(RdmaCollector.Config(proc=tmp_path, sys=tmp_path / "sys", **config), lambda: clock[0])
        collector.open(Given(level=level))
        return collector

    return made


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "sys/class/infiniband"


def read(collector, at=7):
    """Return the values of one reading by name and the dimensions but the device's and the port's; and the problems."""
    (points, problems), values = reading(collector, at), {}
    for point in points:
        more = [word for key, word in sorted(point.dims.items()) if key not in {"device", "port"}]
        values[" ".join([point.metric.name, *more])] = point.value
    return values, problems


def of(values, *names):
    return [values.get(name) for name in names]


CONGESTION = ("rdma.congestion cnp_sent", "rdma.congestion cnp_handled", "rdma.congestion ecn_marked")
TRAFFIC = (
    "rdma.sent",
    "rdma.received",
    "rdma.packets sent",
    "rdma.packets received",
    "rdma.retransmits",
    "rdma.errors",
)


@pytest.mark.parametrize(
    ("capture", "traffic"),
    [
        ("rdma_mlx5", [4 * 85378896588, 4 * 34600185253, 82002535, 34914071, 0, 0]),
        ("rdma_efa", [1047398149094, 1053429412444, 130907467, 6657585, None, 0]),
        ("rdma_irdma", [7224092, 5884668, 101959, 87399, 0, 0]),
        ("rdma_bnxt_re", [163840, 81920, 240, 120, 13, 0]),
        ("rdma_hfi1", [4000, 8000, 77, 78, 9, 0]),
        ("rdma_ionic", [7570000070, 6570000140, 1848145, 1648146, 9, 0]),
    ],
)
def test_each_driver_has_other_files_for_the_same_traffic(rdma, capture, traffic):
    values, problems = read(rdma(capture))
    assert of(values, *TRAFFIC) == traffic
    assert values["rdma.state"] == 1
    assert values["rdma.ports.active"] == 1
    assert not problems


def test_every_reading_keeps_the_contract_at_every_level(rdma):
    for level in Level:
        assert check_collector(rdma(*CAPTURES, level=level), ticks=2, given=Given(level=level))


def test_the_basic_level_has_few_series_of_each_port_and_reads_no_other_file(rdma, folder):
    collector = rdma("rdma_mlx5", level=Level.BASIC)
    read(collector)
    names = {point.metric.name for point in check_collector(collector, ticks=1, given=Given(level=Level.BASIC))}
    assert names == {
        "rdma.state", "rdma.rate", "rdma.ports.active", "rdma.sent", "rdma.received", "rdma.errors", "rdma.link.downed",
        "rdma.retransmits",
    }  # fmt: skip
    assert "np_cnp_sent" not in {row.path.rpartition("/")[2] for port in collector._ports for row in port.rows}


def test_state_rate_congestion_and_errors_have_their_units_and_kinds(rdma):
    values, _ = read(rdma("rdma_bnxt_re"))
    assert values["rdma.rate"] == 100.0
    assert of(values, *CONGESTION) == [11, 12, 13]
    assert values["rdma.errors.detail rx_roce_discards"] == 5
    assert values["rdma.errors.detail rnr_naks_rcvd"] == 8
    assert values["rdma.counter rx_read_req"] == 9


def test_a_card_of_amds_has_congestion_and_errors(rdma, folder, clock):
    collector = rdma("rdma_ionic")
    values, _ = read(collector)
    assert of(values, *CONGESTION) == [11, 12, 13]
    assert of(values, "rdma.errors.detail req_rx_inval_pkts", "rdma.errors.detail resp_rx_outouf_seq") == [2, 6]
    assert values["rdma.counter tx_rdma_retx_bytes"] == 36864
    sysfs.write(folder / "ionic_0/ports/1/hw_counters/rx_rdma_mtu_discard_pkts", "13")
    clock[0] += 60
    assert read(collector)[0]["rdma.errors"] == 10


@pytest.mark.parametrize(("missing", "retransmits"), [(["retx_pkts"], 12), (["retx_pkts", "ack_timeout"], 4)])
def test_firmware_that_counts_no_packets_sent_again_has_the_events_that_cause_one(rdma, folder, missing, retransmits):
    collector = rdma("rdma_ionic")
    for name in missing:
        (folder / f"ionic_0/ports/1/hw_counters/tx_rdma_{name}").unlink()
    collector.open(Given())
    assert read(collector)[0]["rdma.retransmits"] == retransmits


def test_the_operations_of_efa_have_sizes(rdma):
    values, _ = read(rdma("rdma_efa"))
    sizes = {name.rpartition(" ")[2]: value for name, value in values.items() if name.startswith("rdma.operation.size")}
    assert sizes == {
        "send": 8447687166, "recv": 6187744962, "rdma_read": 1047241667482, "rdma_read_resp": 1038950461928,
        "rdma_write": 0, "rdma_write_recv": 0,
    }  # fmt: skip
    assert not any("lifespan" in name for name in values)


def test_counters_that_the_device_repeats_for_its_port_are_read_once(rdma):
    points = check_collector(rdma("rdma_irdma"), ticks=1)
    assert {point.dims["port"] for point in points if "port" in point.dims} == {"1"}


def test_counters_of_the_device_alone_have_the_port_all(rdma, folder):
    sysfs.build(folder.parents[1], "rdma_efa")
    sysfs.write(folder / "rdmap16s27/hw_counters/create_qp_err", "3")
    points = check_collector(rdma("rdma_efa"), ticks=1)
    whole = [(point.metric.name, point.value) for point in points if point.dims.get("port") == "all"]
    assert whole == [("rdma.errors.detail", 3)]


def test_a_value_that_is_not_available_is_absent_and_the_others_are_read(rdma):
    collector = rdma("rdma_i40iw_mlx4")
    points = [point for point in collector.collect(7) if point.dims.get("device") == "i40iw0"]
    assert [(point.metric.name, point.value) for point in points] == [("rdma.state", 1), ("rdma.rate", 10.0)]


def test_older_cards_have_their_long_counters_in_another_folder(rdma):
    points = [point for point in rdma("rdma_i40iw_mlx4").collect(7) if point.metric.name == "rdma.received"]
    assert [(point.dims["port"], point.value) for point in points] == [("1", 4 * 4631917), ("2", 4 * 4631917)]


def test_a_link_that_goes_down_is_counted_and_is_no_longer_active(rdma, folder):
    collector = rdma("rdma_mlx5")
    read(collector)
    port = folder / "mlx5_bond_0/ports/1"
    sysfs.write(port / "state", "1: DOWN")
    sysfs.write(port / "counters/link_downed", "1")
    values, _ = read(collector)
    assert of(values, "rdma.state", "rdma.ports.active", "rdma.link.downed") == [0, 0, 1]


def test_a_device_whose_firmware_refuses_is_asked_again_later_and_later(rdma, folder, clock):
    def refuse():
        for path in sysfs.build(folder.parents[1], "rdma_mlx5").glob("class/infiniband/*/ports/1/*counters/*"):
            sysfs.write(path, "EINVAL")

    refuse()
    collector = rdma("rdma_efa")
    values, problems = read(collector)
    assert values["rdma.sent"] == 1047398149094
    assert "rdma.ports.active" not in values
    assert problems == ["mlx5_bond_0 refuses its counters: Invalid argument; asked again in 1 min"]
    assert read(collector)[1] == []
    clock[0] += 61
    assert read(collector)[1] == ["mlx5_bond_0 refuses its counters: Invalid argument; asked again in 2 min"]
    sysfs.build(folder.parents[1], "rdma_mlx5")
    clock[0] += 61
    assert "rdma.link.downed" not in read(collector)[0]
    clock[0] += 60
    values, problems = read(collector)
    assert (values["rdma.ports.active"], problems) == (2, [])
    refuse()
    clock[0] += 61
    assert "mlx5_bond_0 refuses its counters: Invalid argument; asked again in 1 min" in read(collector)[1]


def test_errors_that_can_be_read_later_join_their_sum_without_a_jump(rdma, folder, clock):
    counters = folder / "hfi1_0/ports/1/counters"
    sysfs.write(counters / "port_rcv_discards", "EINVAL")
    collector = rdma("rdma_hfi1")

    def errors(at):
        clock[0] += 61
        (point,) = (point for point in collector.collect(at) if point.metric.name == "rdma.errors")
        return point.value, point.start_time

    assert errors(7) == (0, 7)
    sysfs.write(counters / "port_rcv_discards", "5000")
    assert errors(99) == (0, 7)
    sysfs.write(counters / "port_rcv_discards", "5003")
    assert errors(199) == (3, 7)
    sysfs.write(counters / "port_rcv_discards", "EINVAL")
    sysfs.write(counters / "symbol_error", "1000")
    assert errors(299) == (1003, 7)  # a file that fails takes nothing from the sum of the others


def test_a_device_may_come_go_and_be_left_alone(rdma, folder, clock):
    collector = rdma("rdma_mlx5", exclude=("rdmap16s27",))
    sysfs.build(folder.parents[1], "rdma_efa", "rdma_bnxt_re")
    assert {point.dims.get("device") for point in collector.collect(7)} == {None, "mlx5_bond_0", "bnxt_re0"}
    shutil.rmtree(folder / "mlx5_bond_0")
    assert {point.dims.get("device") for point in collector.collect(8)} == {None, "bnxt_re0"}
    assert collector.describe() == "bnxt_re0"


@pytest.mark.parametrize(("rate", "problem"), [("", "absent"), ("EINVAL", "refused")])
def test_a_port_without_a_rate_keeps_its_state_and_its_counters(rdma, folder, rate, problem):
    collector = rdma("rdma_mlx5", "rdma_efa")
    path = folder / "mlx5_bond_0/ports/1/rate"
    if rate:
        sysfs.write(path, rate)
    else:
        path.unlink()
    points = list(collector.collect(7))
    names = {point.metric.name for point in points if point.dims.get("device") == "mlx5_bond_0"}
    assert {"rdma.state", "rdma.sent", "rdma.received", "rdma.link.downed"} <= names, problem
    assert "rdma.rate" not in names
    assert [point.value for point in points if point.metric.name == "rdma.ports.active"] == [2]


@pytest.mark.parametrize("state", [None, "", "x\n", "ACTIVE\n"])
def test_a_port_without_a_state_keeps_its_rate_and_counters_and_is_not_counted_as_inactive(rdma, folder, state):
    collector = rdma("rdma_mlx5", "rdma_efa")
    (folder / "mlx5_bond_0/ports/1/state").unlink()
    if state is not None:
        (folder / "mlx5_bond_0/ports/1/state").write_text(state)
    points = list(collector.collect(7))
    names = {point.metric.name for point in points if point.dims.get("device") == "mlx5_bond_0"}
    assert {"rdma.rate", "rdma.sent"} <= names
    assert "rdma.state" not in names
    assert "rdma.ports.active" not in {point.metric.name for point in points}


def test_a_port_whose_files_are_gone_does_not_refuse_and_is_found_again(rdma, folder):
    collector = rdma("rdma_mlx5")
    read(collector)
    files = folder / "mlx5_bond_0/ports/1/counters"
    for path in files.iterdir():
        path.unlink()
    values, problems = read(collector)
    assert ("rdma.sent" in values, problems) == (False, [])
    sysfs.write(files / "port_xmit_data", "10")
    assert read(collector)[0]["rdma.sent"] == 40


def test_a_host_without_the_fabric_is_unavailable(tmp_path):
    with pytest.raises(Unavailable, match="no RDMA device in"):
        RdmaCollector(RdmaCollector.Config(sys=tmp_path)).open(Given())


def test_a_reset_of_the_counters_starts_them_again(rdma, folder):
    collector = rdma("rdma_mlx5")
    port = Dimensions(device="mlx5_bond_0", port="1")
    first = {point.metric.name: point for point in collector.collect(7) if point.dims is port}
    sysfs.write(folder / "mlx5_bond_0/ports/1/counters/port_xmit_data", "10")
    later = {point.metric.name: point for point in collector.collect(10**9) if point.dims is port}
    assert first["rdma.sent"].value > 40
    assert (later["rdma.sent"].value, later["rdma.sent"].start_time) == (40, 7 + 10**6)


MLX5 = (("rx_packets", 9), ("rx_prio3_bytes", 1000), ("tx_prio3_bytes", 2000), ("rx_prio3_pause", 148213),
        ("rx_prio3_pause_duration", 3320119), ("tx_prio3_pause", 96204), ("tx_prio3_pause_duration", 1904772),
        ("rx_global_pause", 4), ("rx_prio3_buf_discard", 7), ("tx_pause_storm_warning_events", 2),
        ("tx_pause_storm_error_events", 1))  # fmt: skip
BNXT = (
    ("rx_pfc_ena_frames_pri3", 5),
    ("tx_pfc_ena_frames_pri3", 6),
    ("pfc_pri3_rx_duration_us", 70),
    ("tx_bytes_pri3", 8),
)


@pytest.fixture
def roce(tmp_path, clock, folder):
    """Make a collector whose one port has the interface `eth0`, of a driver with these counters."""

    def made(card, level=Level.DETAILED, state=None):
        sysfs.build(tmp_path / "sys", "rdma_mlx5")
        sysfs.write(folder / "mlx5_bond_0/ports/1/gid_attrs/ndevs/0", "eth0")
        config = RdmaCollector.Config(proc=tmp_path, sys=tmp_path / "sys")
        collector = RdmaCollector(config, lambda: clock[0], card)
        collector.open(Given(level=level, state=state))
        return collector

    return made


def pauses(collector):
    values, _ = read(collector)
    mine = (name for name in values if name.startswith(("rdma.pause", "rdma.priority")) or "_prio" in name)
    return {name: values[name] for name in mine}


def test_a_port_of_roce_has_pauses_and_traffic_by_priority(roce):
    assert pauses(roce(Card(*MLX5))) == pytest.approx({
        "rdma.priority.traffic received 3": 1000, "rdma.priority.traffic sent 3": 2000,
        "rdma.pause.frames received 3": 148213, "rdma.pause.frames sent 3": 96204, "rdma.pause.frames received all": 4,
        "rdma.pause.time received 3": 3.320119, "rdma.pause.time sent 3": 1.904772,
        "rdma.pause.storms warning": 2, "rdma.pause.storms error": 1, "rdma.errors.detail rx_prio3_buf_discard": 7,
    })  # fmt: skip
    assert pauses(roce(Card(*BNXT))) == pytest.approx({
        "rdma.pause.frames received 3": 5, "rdma.pause.frames sent 3": 6, "rdma.pause.time received 3": 70e-6,
        "rdma.priority.traffic sent 3": 8,
    })  # fmt: skip


def test_a_driver_without_pauses_is_asked_once_and_a_port_of_infiniband_never(roce, folder):
    card = Card(("rx_packets", 9), ("tx_packets", 9))
    collector = roce(card)
    for _ in range(3):
        assert not pauses(collector)
    assert card.asked == [("eth0", 0x03), ("eth0", 0x1B)]
    shutil.rmtree(folder / "mlx5_bond_0/ports/1/gid_attrs")
    card = Card(*MLX5)
    collector._drivers = type(collector._drivers)(lambda name: name, card)
    assert not pauses(collector)
    assert not card.asked


def test_the_basic_level_reads_what_a_verdict_needs_alone(roce):
    assert {name.split()[0] for name in pauses(roce(Card(*MLX5), Level.BASIC))} == {
        "rdma.pause.time",
        "rdma.pause.storms",
    }


def test_priorities_that_get_pauses_later_are_found(roce):
    card = Card(*MLX5)
    collector = roce(card)
    pauses(collector)
    card.counters.append(("rx_prio4_pause", 3))
    assert not pauses(collector)
    assert pauses(collector)["rdma.pause.frames received 4"] == 3
    card.is_gone = True
    assert not pauses(collector)


def test_a_bond_has_the_sum_of_its_members_which_come_and_go(roce, tmp_path):
    card = Card(("rx_prio3_pause", 10))
    collector = roce(card)
    for name in ("eth1", "eth2"):
        sysfs.write(tmp_path / f"sys/class/net/eth0/lower_{name}", f"-> ../{name}")
    name = "rdma.pause.frames received 3"
    assert pauses(collector) == {name: 0}  # a sum begins at 0
    card.counters[0] = ("rx_prio3_pause", 15)
    assert pauses(collector) == {name: 10}
    (tmp_path / "sys/class/net/eth0/lower_eth2").unlink()
    assert pauses(collector) == {name: 10}


def test_pauses_that_the_card_counted_before_the_agent_started_begin_at_the_boot(roce, tmp_path):
    (tmp_path / "stat").write_text("btime 1700000000\n")
    (points, _) = reading(roce(Card(*MLX5)), 1700000001 * 10**9)
    frames = {point.value: point.start_time for point in points if point.metric.name == "rdma.pause.frames"}
    assert frames[148213] == 1700000000 * 10**9


def test_pauses_keep_the_contract(roce):
    assert check_collector(roce(Card(*MLX5)), ticks=2, given=Given(level=Level.ALL))
