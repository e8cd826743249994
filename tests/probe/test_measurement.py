"""A loop of a user's own leaves the records that hpcddp's own leaves, and is read in the same way."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.functional import cross_entropy

from hpcddp.analysis.report.api import analyze
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.frames import runs_frame
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.scaling import scaling_frame
from hpcddp.core.errors import HpcddpError
from hpcddp.core.run_root import single_study
from hpcddp.probe import measure
from hpcddp.probe.script_point import without_secrets
from tests.probe import ARGUMENTS, SETTINGS
from tests.probe.loops import (
    BATCH,
    STEPS,
    WARMUP,
    Loop,
    Optimizer,
    ddp,
    group,
    loader,
    measured,
    network,
    only,
    parts_of,
    plain_step,
    point_of,
    sgd,
    study_at,
    with_runs,
)
from tests.worker import forked

ALL = {"data_wait", "forward", "backward", "optimizer"}


def in_ddp() -> None:
    with group():
        Loop(ddp(network())).run()


def in_one_process() -> None:
    Loop(network()).run()


def test_two_ranks_are_measured(tmp_path: Path) -> None:
    found = measured(tmp_path, 2, in_ddp)
    run, point = only(found), point_of(only(found))
    assert (run.state, run.reason, found.warnings, run.steady_steps) == ("counts", None, (), STEPS)
    assert run.exchange is not None
    assert ALL | {"comm_exposed"} <= parts_of(run)
    assert run.losses is not None
    assert (point.workload.batch_per_gpu, point.workload.precision, point.measure.comm) == (BATCH, "fp32", "on")
    assert point.workload.model.endswith(":Sequential")


@pytest.mark.dear
def test_one_rank_and_several_are_one_series(tmp_path: Path) -> None:
    for world, function in ((1, in_one_process), (1, in_one_process), (2, in_ddp)):
        found = measured(tmp_path, world, function)
    assert [run.state for run in found.runs] == ["counts"] * 3
    scaling = scaling_frame(runs_frame(found), found.points, found.hold)
    assert list(zip(scaling["gpus"], scaling["n"], strict=True)) == [(1, 2), (2, 1)]
    assert scaling["series"].nunique() == 1
    assert scaling["efficiency_1gpu"].notna().all()


def test_gradients_that_are_not_exchanged_fail_a_gate(tmp_path: Path) -> None:
    def each_its_own() -> None:
        with group() as rank:
            Loop(network(), batches=[(images + rank, labels) for images, labels in loader()]).run()

    run = only(measured(tmp_path, 2, each_its_own))
    assert run.state == "rejected"
    assert "check `parameters agree`" in str(run.reason)


def test_a_loss_that_is_no_number_fails_a_gate(tmp_path: Path) -> None:
    def step(batch: Any, model: nn.Module, optimizer: Optimizer, steps: Any) -> None:
        plain_step((batch[0] * float("nan"), batch[1]), model, optimizer, steps)

    assert "check `loss is finite`" in str(only(measured(tmp_path, 1, Loop(network(), step=step).run)).reason)


def test_losses_need_not_be_given(tmp_path: Path) -> None:
    def step(batch: Any, model: nn.Module, optimizer: Optimizer, steps: Any) -> None:
        optimizer.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    run = only(measured(tmp_path, 1, Loop(network(), step=step).run))
    assert (run.state, run.losses) == ("counts", None)


def test_gradients_of_several_batches_are_one_step(tmp_path: Path) -> None:
    """Four, of which DDP exchanges with the last."""

    def accumulating() -> None:
        with group():
            model, numbers = ddp(network()), itertools.count(1)

            def step(batch: Any, model: nn.Module, optimizer: Optimizer, steps: Any) -> None:
                last = next(numbers) % 4 == 0
                with contextlib.nullcontext() if last else model.no_sync():  # type: ignore[operator]
                    (cross_entropy(model(batch[0]), batch[1]) / 4).backward()  # type: ignore[no-untyped-call]
                if last:
                    optimizer.step()
                    optimizer.zero_grad()

            Loop(model, loader(256), step, options={"samples_per_step": 4 * BATCH, "iterations_per_step": 4}).run()

    run = only(measured(tmp_path, 2, accumulating))
    assert (run.state, run.steady_steps) == ("counts", STEPS)
    assert run.exchange is not None
    script = point_of(run).script
    assert script is not None
    assert script.iterations_per_step == 4


def test_several_optimizers_and_frozen_layers(tmp_path: Path) -> None:
    """Both optimizers' steps are one part; the last layer, whose gradient would come first, has none."""

    def loop() -> None:
        model: Any = network()
        model[3].requires_grad_(False)
        parts = [sgd(model[i]) for i in (0, 1)]
        with measure(model, parts, samples_per_step=BATCH, warmup_steps=WARMUP, steps=STEPS) as steps:
            for images, labels in steps(loader()):
                model.zero_grad()
                steps.loss(cross_entropy(model(images), labels)).backward()  # type: ignore[no-untyped-call]
                for each in parts:
                    each.step()

    run = only(measured(tmp_path, 1, loop))
    assert run.state == "counts"
    assert {"backward", "optimizer"} <= parts_of(run)


def test_autocast_is_recorded(tmp_path: Path) -> None:
    """What forward ran in is the precision; a forward without gradients is no part of the step."""

    def step(batch: Any, model: nn.Module, optimizer: Optimizer, steps: Any) -> None:
        with torch.no_grad():
            model(batch[0])
        with torch.autocast("cpu", torch.bfloat16):
            loss = cross_entropy(model(batch[0]), batch[1])
        optimizer.zero_grad()
        steps.loss(loss).backward()
        optimizer.step()

    run = only(measured(tmp_path, 1, Loop(network(), step=step).run))
    assert (run.state, point_of(run).workload.precision) == ("counts", "bf16")


def test_a_loader_that_cannot_begin_again(tmp_path: Path) -> None:
    """What was timed until it ended counts, and it is said that it was less than asked for."""
    loop = Loop(network(), batches=iter(list(loader())))
    outcomes = forked.ranks(tmp_path / "output", 1, with_runs, tmp_path / "runs", loop.run)
    assert "3 of 12 steps were timed before the loop ended. Train more epochs" in outcomes[0].output
    run = only(load_study(study_at(tmp_path / "runs")))
    assert (run.state, run.steady_steps) == ("counts", 3)


def test_a_loop_that_is_left_too_early(tmp_path: Path) -> None:
    run = only(measured(tmp_path, 1, Loop(network(), batches=list(loader())[:1]).run))
    assert run.state == "missing"
    (end,) = (tmp_path / "runs").glob("adhoc/*/r1/*/end.json")
    assert json.loads(end.read_text())["fault"]["kind"] == "error"
    assert "it needs 16 after the untimed first one, 4 of them warm-up: nothing was timed" in str(run.reason)


def test_an_exception_inside(tmp_path: Path) -> None:
    """It goes on to the script, and stands in the records."""
    numbers = itertools.count()

    def step(batch: Any, model: nn.Module, optimizer: Optimizer, steps: Any) -> None:
        plain_step(batch, model, optimizer, steps)
        if next(numbers) == 10:
            raise ValueError("no more of this")

    def raising() -> None:
        with pytest.raises(ValueError, match="no more of this"):
            Loop(network(), step=step).run()

    run = only(measured(tmp_path, 1, raising))
    assert run.state == "missing"
    assert "ValueError: no more of this" in str(run.reason)
    (error,) = (tmp_path / "runs").glob("adhoc/*/r1/*/ranks/00000.error.json")
    assert "Traceback" in json.loads(error.read_text())["traceback"]


def test_one_loop_for_each_measurement(tmp_path: Path) -> None:
    """The same loop again is another run; hooks of the first measurement are gone."""

    def twice() -> None:
        model = network()
        optimizer = sgd(model)
        for again in range(2):
            with measure(model, optimizer, samples_per_step=BATCH, warmup_steps=1, steps=2) as steps:
                for batch in steps(loader()):
                    plain_step(batch, model, optimizer, steps)
                if not again:
                    assert len(list(steps(loader()))) == len(loader())  # trained on, of no run

    assert [run.state for run in measured(tmp_path, 1, twice).runs] == ["counts", "counts"]


def test_training_that_goes_on_leaves_nothing_behind(tmp_path: Path) -> None:
    """DDP keeps a hook for good: what it exchanges later is of no step, and takes no memory."""

    def goes_on() -> None:
        with group():
            model = ddp(network())
            optimizer = sgd(model)
            measurement = measure(model, optimizer, samples_per_step=BATCH, warmup_steps=1, steps=2)
            with measurement as steps:
                for batch in steps(loader()):
                    plain_step(batch, model, optimizer, steps)
            for images, labels in loader():
                cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
            assert measurement._recorder.timer._open.buckets == []
            assert measurement._recorder.timer._open.marks == []

    assert only(measured(tmp_path, 2, goes_on)).state == "counts"


def test_parts_have_names(tmp_path: Path) -> None:
    """It is said at once, not when rows are written."""

    def step(batch: Any, model: nn.Module, optimizer: Optimizer, steps: Any) -> None:
        plain_step(batch, model, optimizer, steps)
        with pytest.raises(HpcddpError, match="no part of a step is called 'clipping': data_wait, h2d_exposed"):
            steps.mark("clipping")

    assert only(measured(tmp_path, 1, Loop(network(), step=step).run)).state == "counts"


def test_a_communication_hook_of_the_scripts_own(tmp_path: Path) -> None:
    """It stays; buckets are not timed, the rest is."""

    def own_hook() -> None:
        with group():
            model: Any = ddp(network())
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)
            Loop(model).run()

    run = only(measured(tmp_path, 2, own_hook))
    assert (run.state, run.exchange) == ("counts", None)
    assert "comm_exposed" in parts_of(run)


def test_processes_without_a_group_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "4")
    model = network()
    with pytest.raises(HpcddpError, match=r"4 processes were started.*Call init_process_group before measure"):
        measure(model, sgd(model), samples_per_step=1)


@pytest.mark.parametrize("wrong", [{"samples_per_step": 0}, {"steps": 0}, {"iterations_per_step": 0}, {"warmup_steps": -1}])
def test_numbers_that_cannot_be(wrong: dict[str, Any]) -> None:
    model = network()
    with pytest.raises(HpcddpError, match="at least 1"):
        measure(model, sgd(model), **{"samples_per_step": 8, **wrong})


def test_secrets_are_recorded_nowhere() -> None:
    """Arguments of language models have tokens in their names: hidden, runs of different ones would be pooled."""
    given = ["--lr", "0.1", "--api-key", "abc", "--hf-token=xyz", "data"]
    assert without_secrets(given) == ("--lr", "0.1", "--api-key", "...", "--hf-token=...", "data")
    others = ("--max-tokens", "512", "--tokenizer=gpt2", "--tokens_per_batch", "8", "--secretary", "x")
    assert without_secrets(others) == others


@pytest.mark.dear
@pytest.mark.parametrize(("world", "in_place"), [(2, False), (2, True), (1, False)])
def test_compiled_modules(tmp_path: Path, world: int, in_place: bool) -> None:
    """By dynamo alone, which is what hooks meet; before DDP, as users have it. The model has its own name."""

    def compiled() -> None:
        torch._dynamo.reset()
        model: Any = network()
        if in_place:
            model.compile(backend="eager")
        else:
            model = torch.compile(model, backend="eager")
        with group() if world > 1 else contextlib.nullcontext():
            Loop(ddp(model) if world > 1 else model).run()

    run = only(measured(tmp_path, world, compiled))
    assert (run.state, run.steady_steps) == ("counts", STEPS)
    assert parts_of(run) >= ALL
    assert point_of(run).workload.model.endswith(":Sequential")


def test_a_scaler_that_skips_steps(tmp_path: Path) -> None:
    """Every third, whose gradient is no number: all steps are timed, and in those that it skips nothing is of the optimizer."""
    scaler, made = torch.amp.GradScaler("cpu", init_scale=4.0), itertools.count(1)

    def step(batch: Any, model: nn.Module, optimizer: Optimizer, steps: Any) -> None:
        loss = steps.loss(cross_entropy(model(batch[0]), batch[1]))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if next(made) % 3 == 0:
            next(model.parameters()).grad.fill_(float("inf"))  # type: ignore[union-attr]
        scaler.step(optimizer)
        scaler.update()

    run = only(measured(tmp_path, 1, Loop(network(), step=step).run))
    assert (run.state, run.steady_steps) == ("counts", STEPS)
    (rows,) = (tmp_path / "runs").glob("adhoc/*/r1/*/ranks/*.steps.csv")
    head, *lines = [line.split(",") for line in rows.read_text().splitlines()]
    optimizer = [bool(line[head.index("optimizer_ns")]) for line in lines]
    assert optimizer == [(number % 3) > 0 for number in range(2, len(lines) + 2)]  # the first step counts nowhere


def test_a_copy_of_the_model_is_not_measured(tmp_path: Path) -> None:
    """Its hooks came with it, and do nothing, where it is evaluated and trained on in every step."""

    def step(batch: Any, model: nn.Module, optimizer: Optimizer, steps: Any) -> None:
        cross_entropy(copy.deepcopy(model)(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
        steps.mark("other")
        plain_step(batch, model, optimizer, steps)

    run = only(measured(tmp_path, 1, Loop(network(), step=step).run))
    assert run.state == "counts"
    assert parts_of(run) >= ALL


def test_an_exchange_by_hand_is_unknown(tmp_path: Path) -> None:
    """It is not taken for none: no part says how long it took, and no table has buckets."""

    def step(batch: Any, model: nn.Module, optimizer: Optimizer, steps: Any) -> None:
        optimizer.zero_grad()
        steps.loss(cross_entropy(model(batch[0]), batch[1])).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # type: ignore[arg-type]
        optimizer.step()

    def by_hand() -> None:
        with group():
            Loop(network(), step=step).run()

    run = only(measured(tmp_path, 2, by_hand))
    assert (run.state, run.exchange) == ("counts", None)
    assert (run.part_ns or {})["comm_exposed"] is None
    assert point_of(run).workload.parallel == "none"


def test_ddp_around_the_model_is_found(tmp_path: Path) -> None:
    """In the first step; its buckets are timed."""

    def inner_model() -> None:
        with group():
            inner = network()
            outer = ddp(inner)
            Loop(inner, step=lambda batch, _, optimizer, steps: plain_step(batch, outer, optimizer, steps)).run()

    run = only(measured(tmp_path, 2, inner_model))
    assert run.state == "counts"
    assert run.exchange is not None
    assert (point_of(run).workload.parallel, point_of(run).measure.comm) == ("ddp", "on")


def test_a_second_rate(tmp_path: Path, undrawn: None) -> None:
    """Tokens/s and operations/s where the script says how many they are; a report of others has no such column."""
    loop = Loop(network(), options={"tokens_per_step": 10 * BATCH, "flops_per_step": 3e6 * BATCH})
    run = only(measured(tmp_path, 1, loop.run))
    assert (run.used.tokens_per_sample, run.used.flops_per_sample) == (10.0, 3_000_000)
    folder = study_at(tmp_path / "runs").folder
    (report,) = analyze(folder)
    assert "tokens/s" in report.text
    (row,) = report.plain["points"]
    assert row["tokens_per_s"] == pytest.approx(10 * row["samples_per_s"])
    in_file = pd.read_csv(folder / "report" / "scaling.csv").iloc[0]
    assert in_file["tokens_per_s"] == pytest.approx(10 * in_file["samples_per_s"])


def test_no_second_rate(tmp_path: Path, undrawn: None) -> None:
    measured(tmp_path, 1, in_one_process)
    folder = study_at(tmp_path / "runs").folder
    (report,) = analyze(folder)
    assert "tokens" not in report.text
    written = [file for file in (folder / "report").rglob("*") if file.suffix in (".csv", ".md", ".tex", ".json")]
    assert len(written) > 3
    assert [file.name for file in written if "tokens" in file.read_text()] == []


JOBS = Path(__file__).parents[2] / "jobs"


def called(folder: Path, *command: str) -> None:
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def check(run: Run) -> None:
    """It counts, and has tokens and operations: six for each of the 4,288 parameters that multiply, twelve for each position."""
    assert (run.state, run.reason, run.steady_steps) == ("counts", None, 12)
    width, length = ARGUMENTS["width"], ARGUMENTS["length"]
    multiplying = 12 * width**2 + 13 * width + 2 * width + width * ARGUMENTS["vocabulary"]
    per_token = 6 * multiplying + 12 * width * length
    assert (run.used.tokens_per_sample, run.used.flops_per_sample) == (length, length * per_token)


@pytest.mark.soak
def test_the_shipped_script_by_torchrun(tmp_path: Path) -> None:
    words = [word for name, value in ARGUMENTS.items() for word in (f"--{name}", str(value))]
    text = (JOBS / "train_lm.py").read_text()
    (tmp_path / "train_lm.py").write_text(text.replace("flops_per_step=flops", "flops_per_step=flops, warmup_steps=3, steps=12"))
    called(tmp_path, "torchrun", "--nproc-per-node", "2", "train_lm.py", *words)
    check(only(load_study(single_study(tmp_path / "jobs"))))


@pytest.mark.dear
def test_the_shipped_script_by_its_sweep(tmp_path: Path, undrawn: None) -> None:
    """`init` gives both files, to edit; two ranks of this machine; the report has tokens/s."""
    called(tmp_path, "hpcddp", "init", "own-script")
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    of_two = ("--cluster", "local", "--group", "in-node", "--where", "ranks <= 2")
    called(tmp_path, "hpcddp", "submit", "own-script.yaml", *of_two, *settings, "--wait", "--yes")
    found = load_study(single_study(tmp_path / "own-script")).runs
    assert sorted(point_of(run).ranks for run in found) == [1, 2]
    for run in found:
        check(run)
    (report,) = analyze(tmp_path / "own-script")
    assert "tokens/s" in report.text
