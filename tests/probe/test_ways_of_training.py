"""Models and loops that are not plain: compiled, copied, by hand, with steps that a loss scaler skips."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.probe.loops import STEPS, Loop, ddp, group, network, plain_step
from tests.probe.records import measured, only, parts_of

ALL = {"data_wait", "forward", "backward", "optimizer"}


def compiled(in_place: bool) -> None:
    """By dynamo alone, which is what hooks meet; before DDP, as users have it."""
    torch._dynamo.reset()
    with group():
        model: Any = network()
        if in_place:
            model.compile(backend="eager")
        else:
            model = torch.compile(model, backend="eager")
        Loop(ddp(model)).run()


@pytest.mark.dear
@pytest.mark.parametrize("in_place", [False, True])
def test_compiled_modules(tmp_path: Path, in_place: bool) -> None:
    """Every part is known; the model has its own name."""
    run = only(measured(tmp_path, 2, compiled, in_place))
    assert (run.state, run.steady_steps) == ("counts", STEPS)
    assert parts_of(run) >= ALL
    assert run.point is not None
    assert run.point.workload.model.endswith(":Sequential")


def without_ddp() -> None:
    """One process, one compiled module."""
    torch._dynamo.reset()
    model: Any = torch.compile(network(), backend="eager")
    Loop(model).run()


def test_a_compiled_module_by_itself(tmp_path: Path) -> None:
    """Hooks are on what torch.compile put around it."""
    run = only(measured(tmp_path, 1, without_ddp))
    assert run.state == "counts"
    assert parts_of(run) >= ALL


def skipping() -> None:
    """A loss scaler on float16, which every third step finds a gradient that is none."""
    scaler, made = torch.amp.GradScaler("cpu", init_scale=4.0), [0]

    def step(batch: Any, model: nn.Module, optimizer: torch.optim.Optimizer, steps: Any) -> None:
        made[0] += 1
        loss = steps.loss(nn.functional.cross_entropy(model(batch[0]), batch[1]))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if made[0] % 3 == 0:
            next(model.parameters()).grad.fill_(float("inf"))  # type: ignore[union-attr]
        scaler.step(optimizer)
        scaler.update()

    Loop(network(), step=step).run()


def test_a_scaler_that_skips_steps(tmp_path: Path) -> None:
    """All steps are timed; in those that it skips nothing is of the optimizer."""
    run = only(measured(tmp_path, 1, skipping))
    assert (run.state, run.steady_steps) == ("counts", STEPS)
    (rows,) = (tmp_path / "runs").glob("adhoc/*/r1/*/ranks/*.steps.csv")
    head, *lines = [line.split(",") for line in rows.read_text().splitlines()]
    optimizer = [bool(line[head.index("optimizer_ns")]) for line in lines]
    assert optimizer == [(made % 3) > 0 for made in range(2, len(lines) + 2)]  # the first step counts nowhere


def with_an_average() -> None:
    """A copy of the model is evaluated, and trained on, in every step."""

    def step(batch: Any, model: nn.Module, optimizer: torch.optim.Optimizer, steps: Any) -> None:
        nn.functional.cross_entropy(copy.deepcopy(model)(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
        steps.mark("other")
        plain_step(batch, model, optimizer, steps)

    Loop(network(), step=step).run()


def test_a_copy_of_the_model_is_not_measured(tmp_path: Path) -> None:
    """Its hooks came with it, and do nothing."""
    run = only(measured(tmp_path, 1, with_an_average))
    assert run.state == "counts"
    assert parts_of(run) >= ALL


def by_hand() -> None:
    """Gradients travel by all-reduces of the script's own."""

    def step(batch: Any, model: nn.Module, optimizer: torch.optim.Optimizer, steps: Any) -> None:
        optimizer.zero_grad()
        steps.loss(nn.functional.cross_entropy(model(batch[0]), batch[1])).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # type: ignore[arg-type]
        optimizer.step()

    with group():
        Loop(network(), step=step).run()


def test_an_exchange_by_hand_is_unknown(tmp_path: Path) -> None:
    """It is not taken for none: no part says how long it took, and no table has buckets."""
    run = only(measured(tmp_path, 2, by_hand))
    assert (run.state, run.exchange) == ("counts", None)
    assert (run.part_ns or {})["comm_exposed"] is None
    assert run.point is not None
    assert run.point.workload.parallel == "none"


def inner_model() -> None:
    """The loop calls DDP, and measure is given what is inside."""

    with group():
        inner = network()
        outer = ddp(inner)

        def step(batch: Any, model: nn.Module, optimizer: torch.optim.Optimizer, steps: Any) -> None:
            plain_step(batch, outer, optimizer, steps)

        Loop(inner, step=step).run()


def test_ddp_around_the_model_is_found(tmp_path: Path) -> None:
    """In the first step; its buckets are timed."""
    run = only(measured(tmp_path, 2, inner_model))
    assert run.state == "counts"
    assert run.exchange is not None
    assert run.point is not None
    assert (run.point.workload.parallel, run.point.measure.comm) == ("ddp", "on")
