"""The profile `wandb` sends what W&B's release 0.31 sends, key by key."""

import re
from pathlib import Path

import pytest
from tests.agent.config.naming.builders import declared

from chipwatch.config.naming.profiles import Profile, profile
from chipwatch.config.naming.rename import Copier, Renamer
from chipwatch.contract.datapoint import Dimensions

WANDB = profile("wandb")
FOLDER = Path(__file__).parents[3] / "fixtures" / "wandb"
RUN, HARDWARE = (set((FOLDER / f"keys_0.31.0{part}.txt").read_text().splitlines()) for part in ("", "_hardware"))
WITHOUT_COUNTERPART = {"gpu.0.pipeTensorHmmaActive"}
CATEGORIES = {
    "neuron.host.memory.category.used": ("application_memory", "constants", "dma_buffers", "tensors"),
    "neuron.core.memory.used": ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors"),
}


def sent(limit: float = 0.0) -> set[str]:
    """Return our keys for all that the profile names, device 0 being the only one."""
    words = {"path": "/", "device": "vda"}
    points = [
        metric.point(7, limit, Dimensions({key: words.get(key, "0") for key in metric.dims} | more))
        for metric in declared().values()
        for more in ([{"category": word} for word in CATEGORIES.get(metric.name, ())] or [{}])
    ]
    rename, copy = Renamer(Profile(WANDB.names)), Copier(WANDB.copies, 8.0)
    named = {rename(point).metric.name for point in points if point.metric.name in WANDB.names}
    return named | {point.metric.name for point in copy(points)}


@pytest.mark.parametrize("limit", [1.0, 8.0])
def test_each_key_that_it_sends_is_sent_and_none_that_it_does_not(limit):
    theirs = {re.sub(r"^(trn|tpu)\.1\.", r"\1.0.", key) for key in RUN | HARDWARE}
    assert sent(limit) == theirs - WITHOUT_COUNTERPART
