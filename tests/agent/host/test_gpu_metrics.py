"""A metric has the same meaning for the chips of every maker."""

from dataclasses import replace

from chipwatch.advisor.catalogue import catalogue as declared
from chipwatch.host import gpu_metrics

PARTS = ("mig",)
"""Dimensions of a part of a device, beside which the same is declared of the whole."""


def of_the_whole(metric):
    return replace(metric, dims=tuple(key for key in metric.dims if key not in PARTS))


def test_no_two_collectors_declare_one_name_with_different_fields():
    found = {}
    for collector, metrics in declared().items():
        for metric in metrics:
            found.setdefault(metric.name, {}).setdefault(collector, set()).add(of_the_whole(metric))
    shared = {name: makers for name, makers in found.items() if len(makers) > 1}
    assert "gpu.utilization" in shared
    assert {name: makers for name, makers in shared.items() if len(set().union(*makers.values())) > 1} == {}


def test_metrics_of_several_makers_are_declared_once():
    makers = {}
    for collector, metrics in declared().items():
        for name in {metric.name for metric in metrics if metric.name.startswith("gpu.")}:
            makers.setdefault(name, set()).add(collector)
    assert {name for name, told in makers.items() if len(told) > 1} == {metric.name for metric in gpu_metrics.FAMILY}


def test_the_family_names_no_maker():
    for metric in gpu_metrics.FAMILY:
        words = metric.help.lower()
        assert not [maker for maker in ("nvidia", "amd", "intel", "apple", "gaudi", "kernel") if maker in words]
        assert metric.dims[0] == "gpu"
        assert not {*metric.dims} & {*PARTS}
