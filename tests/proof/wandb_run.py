"""
Runs wandb offline in the folder of argument 1 for argument 2 seconds; writes the last values of its system metrics.

Further arguments are endpoints that it scrapes, as NAME=URL.
"""

import json
import struct
import sys
import time
from pathlib import Path

import wandb
from wandb.proto import wandb_internal_pb2

BLOCK, HEADER, FIRST = 32768, 7, 7
"""A .wandb file has the form of LevelDB's log after 7 bytes: blocks of records with a checksum, a size and a kind."""

folder = Path(sys.argv[1])
endpoints = dict(word.split("=", 1) for word in sys.argv[3:]) or None
settings = wandb.Settings(
    x_stats_sampling_interval=1.0, x_stats_open_metrics_endpoints=endpoints, console="off", silent=True
)
with wandb.init(project="proof", dir=folder, mode="offline", settings=settings):
    time.sleep(float(sys.argv[2]))
(file,) = folder.glob("wandb/offline-run-*/*.wandb")
data, at, record, found = file.read_bytes(), FIRST, b"", {}
while at + HEADER <= len(data):
    left = BLOCK - at % BLOCK
    _, size, kind = struct.unpack_from("<IHB", data, at)
    if left < HEADER or not kind:
        at += left
        continue
    record += data[at + HEADER : at + HEADER + size]
    at += HEADER + size
    if kind in (1, 4):  # the whole record, or its last part
        stats = wandb_internal_pb2.Record.FromString(record).stats
        found |= {item.key: json.loads(item.value_json) for item in stats.item}
        record = b""
sys.stdout.write(json.dumps(found))
