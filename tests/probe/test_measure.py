"""A loop of a user's own leaves the records that hpcddp's own leaves, and is read in the same way."""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.analysis.study.frames import runs_frame
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.scaling import scaling_frame
from hpcddp.core.errors import HpcddpError
from hpcddp.probe import measure
from hpcddp.probe.script_point import without_secrets
from tests.probe.loops import BATCH, STEPS, WARMUP, Loop, ddp, group, loader, network, plain_step, study_at
from tests.probe.records import measured, only, parts_of, with_runs
from tests.worker import forked


def in_ddp() -> None:
    """The plain loop, as one of several ranks."""
    with group():
        Loop(ddp(network())).run()


def in_one_process() -> None:
    """The plain loop in a single process that formed no group."""
    Loop(network()).run()


def test_two_ranks_are_measured(tmp_path: Path) -> None:
    """Every part of every step, DDP's buckets, loss and parameters; the run counts."""
    found = measured(tmp_path, 2, in_ddp)
    run = only(found)
    assert (run.state, run.reason, found.warnings) == ("counts", None, ())
    assert run.steady_steps == STEPS
    assert run.exchange is not None
    assert {"data_wait", "forward", "backward", "comm_exposed", "optimizer"} <= parts_of(run)
    assert run.losses is not None
    point = run.point
    assert point is not None
    assert (point.workload.batch_per_gpu, point.workload.precision, point.measure.comm) == (BATCH, "fp32", "on")
    assert point.workload.model.endswith(":Sequential")


@pytest.mark.dear
def test_one_rank_and_several_are_one_series(tmp_path: Path) -> None:
    """A process by itself is the baseline of two; each run of the same point is another repetition."""
    for world, function in ((1, in_one_process), (1, in_one_process), (2, in_ddp)):
        found = measured(tmp_path, world, function)
    assert [run.state for run in found.runs] == ["counts"] * 3
    scaling = scaling_frame(runs_frame(found), found.points, found.hold)
    assert list(zip(scaling["gpus"], scaling["n"], strict=True)) == [(1, 2), (2, 1)]
    assert scaling["series"].nunique() == 1
    assert scaling["efficiency_1gpu"].notna().all()


def never_synchronised() -> None:
    """Each rank trains a model of its own, with other data."""
    with group() as rank:
        data = loader()
        Loop(network(), batches=[(images + rank, labels) for images, labels in data]).run()


def test_gradients_that_are_not_exchanged_fail_a_gate(tmp_path: Path) -> None:
    """The raw model in the loop: ranks drift apart, and the run does not count."""
    run = only(measured(tmp_path, 2, never_synchronised))
    assert run.state == "rejected"
    assert "gate `parameters agree`" in str(run.reason)


def not_a_number() -> None:
    """A loss that is none."""

    def step(batch: Any, model: nn.Module, optimizer: torch.optim.Optimizer, steps: Any) -> None:
        plain_step((batch[0] * float("nan"), batch[1]), model, optimizer, steps)

    Loop(network(), step=step).run()


def test_a_loss_that_is_no_number_fails_a_gate(tmp_path: Path) -> None:
    """As in hpcddp's own loop."""
    assert "gate `loss is finite`" in str(only(measured(tmp_path, 1, not_a_number)).reason)


def without_loss() -> None:
    """steps.loss is not called."""

    def step(batch: Any, model: nn.Module, optimizer: torch.optim.Optimizer, steps: Any) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    Loop(network(), step=step).run()


def test_losses_need_not_be_given(tmp_path: Path) -> None:
    """The run counts; its loss is unknown."""
    run = only(measured(tmp_path, 1, without_loss))
    assert (run.state, run.losses) == ("counts", None)


def accumulating() -> None:
    """Four batches a step, of which DDP exchanges with the last."""
    with group():
        model, numbers = ddp(network()), itertools.count(1)

        def step(batch: Any, model: nn.Module, optimizer: torch.optim.Optimizer, steps: Any) -> None:
            last = next(numbers) % 4 == 0
            with contextlib.nullcontext() if last else model.no_sync():  # type: ignore[operator]
                loss = nn.functional.cross_entropy(model(batch[0]), batch[1]) / 4
                loss.backward()  # type: ignore[no-untyped-call]
            if last:
                optimizer.step()
                optimizer.zero_grad()

        options = {"samples_per_step": 4 * BATCH, "iterations_per_step": 4}
        Loop(model, loader(256), step, options=options).run()


def test_gradients_of_several_batches_are_one_step(tmp_path: Path) -> None:
    """Steps are the optimizer's: parts of the batches add up, and each exchange is in one step."""
    run = only(measured(tmp_path, 2, accumulating))
    assert (run.state, run.steady_steps) == ("counts", STEPS)
    assert run.exchange is not None
    assert run.point is not None
    assert run.point.script is not None
    assert run.point.script.iterations_per_step == 4


def two_optimizers_and_a_frozen_layer() -> None:
    """Parameters in two optimizers; the last layer, whose gradient would come first, has none."""
    model = network()
    for parameter in model[3].parameters():  # type: ignore[index]
        parameter.requires_grad_(False)
    parts = [torch.optim.SGD(model[i].parameters(), lr=0.01) for i in (0, 1)]  # type: ignore[index]
    with measure(model, parts, samples_per_step=BATCH, warmup_steps=WARMUP, steps=STEPS) as steps:
        for images, labels in steps(loader()):
            model.zero_grad()
            steps.loss(nn.functional.cross_entropy(model(images), labels)).backward()  # type: ignore[no-untyped-call]
            for each in parts:
                each.step()


def test_several_optimizers_and_frozen_layers(tmp_path: Path) -> None:
    """Both optimizers' steps are one part; a layer without gradients is in nobody's way."""
    run = only(measured(tmp_path, 1, two_optimizers_and_a_frozen_layer))
    assert run.state == "counts"
    assert {"backward", "optimizer"} <= parts_of(run)


def in_bfloat16() -> None:
    """Under autocast, with an evaluation now and then."""

    def step(batch: Any, model: nn.Module, optimizer: torch.optim.Optimizer, steps: Any) -> None:
        with torch.no_grad():
            model(batch[0])
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        optimizer.zero_grad()
        steps.loss(loss).backward()
        optimizer.step()

    Loop(network(), step=step).run()


def test_autocast_is_recorded(tmp_path: Path) -> None:
    """What forward ran in is the precision; a forward without gradients is no part of the step."""
    run = only(measured(tmp_path, 1, in_bfloat16))
    assert run.point is not None
    assert (run.state, run.point.workload.precision) == ("counts", "bf16")


def of_an_iterator() -> None:
    """Batches that come once: too few."""
    Loop(network(), batches=iter(list(loader()))).run()


def test_a_loader_that_cannot_begin_again(tmp_path: Path) -> None:
    """What was timed until it ended counts, and it is said that it was less than asked for."""
    outcomes = forked.ranks(tmp_path / "output", 1, with_runs, tmp_path / "runs", of_an_iterator)
    assert "3 of 12 steps were timed: the loop ended before. Train more epochs" in outcomes[0].output
    run = only(load_study(study_at(tmp_path / "runs")))
    assert (run.state, run.steady_steps) == ("counts", 3)


def left_during_warmup() -> None:
    """The loop is left by itself."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with measure(model, optimizer, samples_per_step=BATCH, warmup_steps=WARMUP, steps=STEPS) as steps:
        for number, batch in enumerate(steps(loader())):
            plain_step(batch, model, optimizer, steps)
            if number == 3:
                break


def test_a_loop_that_is_left_too_early(tmp_path: Path) -> None:
    """Nothing was timed: the run failed, and says what to change."""
    run = only(measured(tmp_path, 1, left_during_warmup))
    assert run.state == "missing"
    (end,) = (tmp_path / "runs").glob("adhoc/*/r1/*/end.json")
    assert json.loads(end.read_text())["fault"]["kind"] == "error"
    assert "it takes 16 behind the first, which counts nowhere, 4 of them warm-up: nothing was timed" in str(run.reason)


def raising() -> None:
    """The training fails in its tenth step."""
    numbers = itertools.count()

    def step(batch: Any, model: nn.Module, optimizer: torch.optim.Optimizer, steps: Any) -> None:
        plain_step(batch, model, optimizer, steps)
        if next(numbers) == 10:
            raise ValueError("no more of this")

    with pytest.raises(ValueError, match="no more of this"):
        Loop(network(), step=step).run()


def test_an_exception_inside(tmp_path: Path) -> None:
    """It goes on to the script, and stands in the records."""
    run = only(measured(tmp_path, 1, raising))
    assert run.state == "missing"
    assert "ValueError: no more of this" in str(run.reason)
    (error,) = (tmp_path / "runs").glob("adhoc/*/r1/*/ranks/00000.error.json")
    assert "Traceback" in json.loads(error.read_text())["traceback"]


def twice() -> None:
    """Another epoch behind all steps, and another measurement."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with measure(model, optimizer, samples_per_step=BATCH, warmup_steps=1, steps=2) as steps:
        for batch in steps(loader()):
            plain_step(batch, model, optimizer, steps)
        assert len(list(steps(loader()))) == len(loader())  # trained on, of no run
    with measure(model, optimizer, samples_per_step=BATCH, warmup_steps=1, steps=2) as steps:
        for batch in steps(loader()):
            plain_step(batch, model, optimizer, steps)


def test_one_loop_for_each_measurement(tmp_path: Path) -> None:
    """The same loop again is another run; hooks of the first measurement are gone."""
    assert [run.state for run in measured(tmp_path, 1, twice).runs] == ["counts", "counts"]


def goes_on_training() -> None:
    """The same model, after it was measured."""
    with group():
        model: Any = ddp(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        measurement = measure(model, optimizer, samples_per_step=BATCH, warmup_steps=1, steps=2)
        with measurement as steps:
            for batch in steps(loader()):
                plain_step(batch, model, optimizer, steps)
        for images, labels in loader():
            nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        assert measurement._recorder.timer._open.buckets == []
        assert measurement._recorder.timer._open.marks == []


def test_training_that_goes_on_leaves_nothing_behind(tmp_path: Path) -> None:
    """DDP keeps a hook for good: what it exchanges later is of no step, and takes no memory."""
    assert only(measured(tmp_path, 2, goes_on_training)).state == "counts"


def of_a_part_that_is_none() -> None:
    """A word that no column has."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with measure(model, optimizer, samples_per_step=BATCH) as steps:
        for batch in steps(loader()):
            plain_step(batch, model, optimizer, steps)
            with pytest.raises(HpcddpError, match="no part of a step is called 'clipping': data_wait, h2d_exposed"):
                steps.mark("clipping")
            break


def test_parts_have_names(tmp_path: Path) -> None:
    """At once, not when rows are written."""
    forked.values(tmp_path / "output", 1, with_runs, tmp_path / "runs", of_a_part_that_is_none)


def own_hook() -> None:
    """DDP has a communication hook of the script's own."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    with group():
        model: Any = ddp(network())
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        Loop(model).run()


def test_a_communication_hook_of_the_scripts_own(tmp_path: Path) -> None:
    """It stays; buckets are not timed, the rest is."""
    run = only(measured(tmp_path, 2, own_hook))
    assert (run.state, run.exchange) == ("counts", None)
    assert "comm_exposed" in parts_of(run)


def test_processes_without_a_group_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would measure itself in_one_process."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "4")
    model = network()
    with pytest.raises(HpcddpError, match=r"4 processes were started.*call init_process_group before measure"):
        measure(model, torch.optim.SGD(model.parameters(), lr=0.1), samples_per_step=1)


@pytest.mark.parametrize("wrong", [{"samples_per_step": 0}, {"steps": 0}, {"iterations_per_step": 0}, {"warmup_steps": -1}])
def test_numbers_that_cannot_be(wrong: dict[str, Any]) -> None:
    """Before anything is written."""
    model = network()
    with pytest.raises(HpcddpError, match="1 at least"):
        measure(model, torch.optim.SGD(model.parameters(), lr=0.1), **{"samples_per_step": 8, **wrong})


def test_secrets_are_recorded_nowhere() -> None:
    """Values of arguments whose names say so, in either form."""
    given = ["--lr", "0.1", "--api-key", "abc", "--hf-token=xyz", "data"]
    assert without_secrets(given) == ("--lr", "0.1", "--api-key", "...", "--hf-token=...", "data")


def test_what_a_run_is_of_is_recorded() -> None:
    """Arguments of language models have tokens in their names: hidden, runs of different ones would be pooled."""
    given = ("--max-tokens", "512", "--tokenizer=gpt2", "--tokens_per_batch", "8", "--secretary", "x")
    assert without_secrets(given) == given
