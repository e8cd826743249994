"""A delay of a known length in a user's own loop is found in the part where it belongs, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hpcddp.analysis.records.json_files import read_training_end
from hpcddp.analysis.records.rows import Columns
from hpcddp.analysis.records.steps import COLUMNS, rank_results, step_tables
from hpcddp.core.records import WARMUP
from tests.probe.loops import BATCH, Loop, SlowEverySecondTime, ddp, group, loader, network, study_at
from tests.worker import forked

pytestmark = pytest.mark.timed

DELAY_S = 0.1
STEPS = 16


def tables(folder: Path, world: int, function: Callable[[], None]) -> list[Columns]:
    """Steady steps of each rank."""
    forked.values(folder / "output", world, _with_runs, folder / "runs", function)
    (attempt,) = study_at(folder / "runs").folder.glob("*/r1/*")
    warnings = list[str]()
    found = step_tables(attempt, rank_results(read_training_end(attempt), world), COLUMNS, warnings)
    assert warnings == []
    return [{name: values[columns["flags"] & WARMUP == 0] for name, values in columns.items()} for columns in found]


def _with_runs(runs: Path, function: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPCDDP_RUNS", str(runs))
        function()


def rise(table: Columns, part: str, of_steps: Callable[[Any], Any] = np.median) -> float:
    """How much longer a part lasts in every second step than in the others, as a share of the delay."""
    values = table[f"{part}_ns"]
    fast, slow = sorted((float(of_steps(values[0::2])), float(of_steps(values[1::2]))))
    return (slow - fast) / (DELAY_S * 1e9)


def with_delay(where: str) -> None:
    """The plain loop with a delay in every second step."""
    slow = SlowEverySecondTime(DELAY_S)
    places = {"data_wait": _slow_loader, "forward": _slow_forward, "backward": _slow_backward, "optimizer": _slow_optimizer}
    loop = places[where](slow)
    loop.options = {"steps": STEPS}
    loop.run()


def _slow_loader(slow: SlowEverySecondTime) -> Loop:
    class Slow:
        def __iter__(self) -> Iterator[Any]:
            for batch in loader():
                slow()
                yield batch

    return Loop(network(), batches=Slow())


def _slow_forward(slow: SlowEverySecondTime) -> Loop:
    class Slow(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            slow()
            return images

    return Loop(nn.Sequential(Slow(), network()))


def _slow_backward(slow: SlowEverySecondTime) -> Loop:
    class Sleep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, images: torch.Tensor) -> torch.Tensor:
            return images.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            slow()
            return gradients[0]

    class Slow(nn.Module):
        def forward(self, images: torch.Tensor) -> Any:
            return Sleep.apply(images)

    first, *others = network().children()
    return Loop(nn.Sequential(first, Slow(), *others))


def _slow_optimizer(slow: SlowEverySecondTime) -> Loop:
    class Slow(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            slow()
            return super().step(closure)

    return Loop(network(), make_optimizer=lambda model: Slow(model.parameters(), lr=0.01))


@pytest.mark.parametrize("where", ["data_wait", "forward", "backward", "optimizer"])
def test_a_delay_is_in_its_part(tmp_path: Path, where: str) -> None:
    """Within a tenth of its length, and not in the others: the least of each, as what else runs only adds to them."""
    (table,) = tables(tmp_path, 1, lambda: with_delay(where))
    found = {part: rise(table, part, np.min) for part in ("data_wait", "forward", "backward", "optimizer")}
    assert found == {part: pytest.approx(float(part == where), abs=0.1) for part in found}


def one_slow_rank() -> None:
    """Rank 1 sleeps in forward."""
    slow = SlowEverySecondTime(DELAY_S)

    class Slow(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            if rank == 1:
                slow()
            return images

    with group() as rank:
        Loop(ddp(nn.Sequential(Slow(), network())), options={"steps": STEPS, "samples_per_step": BATCH}).run()


def test_a_slow_rank_is_waited_for(tmp_path: Path) -> None:
    """Its forward is longer; the other rank waits with its gradients."""
    first, second = tables(tmp_path, 2, one_slow_rank)
    assert [rise(second, part) for part in ("forward", "comm_exposed")] == pytest.approx([1, 0], abs=0.1)
    assert [rise(first, part) for part in ("forward", "comm_exposed")] == pytest.approx([0, 1], abs=0.1)
