from dataclasses import dataclass
from pathlib import Path

from chipwatch import Collector, Dimensions, Level, Needs, Unavailable, gauge

HEAT = gauge("zone.temperature", "Cel", "Temperature of a part.", Level.DETAILED, ("zone",))


class ZoneCollector(Collector):
    metrics = (HEAT,)
    needs = Needs(level=True)

    @dataclass(frozen=True)
    class Config:
        sys: Path = Path("/sys")

    def __init__(self, config):
        self._folder = config.sys / "class/thermal"

    def open(self, given):
        if given.level < Level.DETAILED or not self._folder.is_dir():
            raise Unavailable(f"{self._folder} is absent, or no sink wants it")

    def collect(self, at):
        for zone in self._folder.glob("thermal_zone*"):
            yield HEAT.point(at, int((zone / "temp").read_text()) / 1000, Dimensions(zone=zone.name))
