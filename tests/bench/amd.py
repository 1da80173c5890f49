"""Cost of eight AMD cards, in a sysfs made of files."""

import tempfile
from pathlib import Path

from tests.bench.figure import Effort, Figure, cpu_ms

from chipwatch.collectors.amd import AmdCollector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.plugin import Given

CARDS = 8
TICKS = 40
PAUSE = 0.025
"""Seconds between two ticks."""
DEVICE = {
    "vendor": "0x1002",
    "power/runtime_status": "active",
    "gpu_busy_percent": "94",
    "mem_busy_percent": "61",
    "mem_info_vram_total": str(196592 << 20),
    "mem_info_vram_used": str(17153 << 20),
    "ras/umc_err_count": "ue: 0\nce: 0",
    "hwmon/hwmon1/power1_input": "612000000",
    "hwmon/hwmon1/power1_cap": "750000000",
    "hwmon/hwmon1/temp2_label": "junction",
    "hwmon/hwmon1/temp2_input": "63000",
    "hwmon/hwmon1/temp3_label": "mem",
    "hwmon/hwmon1/temp3_input": "55000",
    "hwmon/hwmon1/freq1_input": "2100000000",
    "hwmon/hwmon1/freq2_input": "1300000000",
}


def eight_cards(effort: Effort) -> list[Figure]:
    """Read eight cards at two levels, everything in each tick."""
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for card in range(CARDS):
            device = Path(folder) / f"class/drm/card{card}/device"
            for name, value in {**DEVICE, "uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:0{card}:00.0"}.items():
                (device / name).parent.mkdir(parents=True, exist_ok=True)
                (device / name).write_text(value + "\n")
        for level in (Level.BASIC, Level.ALL):
            collector = AmdCollector(AmdCollector.Config(sys=Path(folder)))
            now = [0]

            def clock(now: list[int] = now) -> int:
                now[0] += 10_000_000_000
                return now[0]

            collector._clock = clock
            collector.open(Given(level=level))

            def tick(at: int, collector: AmdCollector = collector) -> None:
                assert len(list(collector.collect(at))) >= 8 * CARDS

            cpu_ms(tick, 5, PAUSE)
            values = [cpu_ms(tick, TICKS, PAUSE) for _ in range(effort.rounds)]
            collector.close()
            name = level.name.lower()
            how = f"CPU of AmdCollector.collect at level {name}, files of a MI300X; mean of {TICKS} ticks with expensive queries"
            figures.append(Figure(f"{CARDS} AMD cards, {name}, one tick", "ms", 1.0, values, how))
    return figures
