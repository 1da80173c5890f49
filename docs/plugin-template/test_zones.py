from chipwatch import check_collector
from chipwatch_zones import ZoneCollector


def test_it_reads_a_zone(tmp_path):
    (tmp_path / "class/thermal/thermal_zone0").mkdir(parents=True)
    (tmp_path / "class/thermal/thermal_zone0/temp").write_text("41500\n")
    assert [point.value for point in check_collector(ZoneCollector(ZoneCollector.Config(tmp_path)), ticks=1)] == [41.5]
