"""Operations of a script's step, counted where they are all known and those of every step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from hpcddp.probe.flop_count import step_flops
from hpcddp.worker.training.sharding import _fully_shard
from tests.probe import loops
from tests.probe.loops import BATCH, Loop, group, loader, measured, network, only

IN, HIDDEN, OUT = 12, 6, 2
FORWARD = 2 * BATCH * (IN * HIDDEN + HIDDEN * OUT)
STEP = 3 * FORWARD - 2 * BATCH * IN * HIDDEN
"""Backward is twice forward, but for the gradients of the batch, which nobody asks for."""

Backward = Callable[[nn.Module, torch.Tensor], None]


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(IN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT))


def plain(model: nn.Module, batch: torch.Tensor) -> None:
    model(batch).sum().backward()


def counted(model: nn.Module, step: Backward = plain, optimizer: Any = None, shape: tuple[int, ...] = (BATCH, IN)) -> int | None:
    optimizer = optimizer or torch.optim.AdamW(model.parameters())
    flops = step_flops(model, [optimizer])
    if flops is None:
        return None
    for _ in range(2):
        flops.begin_batch()
        step(model, torch.randn(shape))
        optimizer.step()
        optimizer.zero_grad()
        flops.end_batch()
        flops.end_step()
    flops.end()
    return flops.of_step


def test_forward_and_backward() -> None:
    assert counted(mlp()) == STEP


def test_attention_and_convolutions() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    for model, shape in ((layer, (4, 7, 16)), (conv, (4, 3, 8, 8))):
        with FlopCounterMode(display=False) as counter:
            plain(model, torch.randn(shape))
        assert counted(model, shape=shape) == counter.get_total_flops() > 0


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_is_computed_again_is_not_counted(reentrant: bool) -> None:
    def step(model: nn.Module, batch: torch.Tensor) -> None:
        checkpoint(model, batch.requires_grad_(), use_reentrant=reentrant).sum().backward()

    assert counted(mlp(), step) == 3 * FORWARD


class ProductsInStep(torch.optim.SGD):
    """Multiplies gradients in its step, as optimizers with a preconditioner do."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Also calls a closure, which is forward and backward."""
        if closure:
            with torch.enable_grad():
                closure()
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                if parameter.ndim == 2:
                    parameter.grad @ parameter.grad.T
        super().step()


def test_the_optimizer_is_not_counted() -> None:
    model = mlp()
    assert counted(model, optimizer=ProductsInStep(model.parameters(), lr=0.1)) == STEP
    model = mlp()
    optimizer = ProductsInStep(model.parameters(), lr=0.1)
    assert counted(model, lambda model, batch: optimizer.step(lambda: plain(model, batch)), optimizer) == STEP


def test_a_frozen_teacher_is_counted() -> None:
    """Its forward is work of the step, in inference mode, too."""

    def step(model: nn.Module, batch: torch.Tensor) -> None:
        with torch.inference_mode():
            model(batch)
        plain(model, batch)

    assert counted(mlp(), step) == STEP + FORWARD


class Doubles(torch.autograd.Function):
    """Might have called any kernel."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 2


def penalized(model: nn.Module, batch: torch.Tensor) -> None:
    """Differentiates twice."""
    batch.requires_grad_()
    (gradient,) = torch.autograd.grad(model(batch).sum(), batch, create_graph=True)
    gradient.square().sum().backward()  # type: ignore[no-untyped-call]


def of_other_shapes() -> Backward:
    lengths = iter(range(1, 9))
    return lambda model, batch: plain(model, batch[: next(lengths)])


UNKNOWN = {
    "a kernel without a formula": (nn.LSTM(IN, 4), lambda model, batch: model(batch)[0].sum().backward()),
    "a function of the user's own": (mlp(), lambda model, batch: Doubles.apply(model(batch)).sum().backward()),
    "derivatives of derivatives": (mlp(), penalized),
    "shapes that vary": (mlp(), of_other_shapes()),
    "nothing that is counted": (nn.Embedding(4, 3), lambda model, batch: model(batch.long() % 4).sum().backward()),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_rather_than_wrong(name: str) -> None:
    model, step = UNKNOWN[name]
    assert counted(model, step) is None


def test_what_is_compiled_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first call would not compile it, whatever of the script it is."""
    import torch._dynamo.eval_frame as dynamo

    before = dict(dynamo.cached_backends)
    monkeypatch.setattr(dynamo, "cached_backends", {})
    assert step_flops(mlp(), []) is not None
    torch.compile(torch.sin, backend="eager")
    assert step_flops(mlp(), []) is None
    monkeypatch.setattr(dynamo, "cached_backends", before)


def test_what_is_compiled_before_the_first_step_is_compiled_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo.eval_frame as dynamo

    monkeypatch.setattr(dynamo, "cached_backends", {})
    model, graphs = mlp(), list[Any]()
    flops = step_flops(model, [])
    assert flops is not None

    def compiler(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=compiler)
    flops.begin_batch()
    compiled(torch.randn(BATCH, IN)).sum().backward()
    flops.end_batch()
    flops.end_step()
    assert (len(graphs), flops.of_step) == (1, None)


def in_two_ways() -> dict[str, int | None]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    fully_shard, _ = _fully_shard()
    with group():
        sharded = mlp()
        for part in (sharded[0], sharded):
            fully_shard(part)

        def clipped(model: nn.Module, batch: torch.Tensor) -> None:
            plain(model, batch)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)

        split = mlp()
        parallelize_module(split, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
        return {"fsdp": counted(sharded, clipped), "tensor parallel": counted(split)}


@pytest.mark.dear
def test_parameters_in_shards(tmp_path: Path) -> None:
    """A rank computes what it would without; where ranks share a product, what each does is not known."""
    from tests.worker import forked

    assert forked.values(tmp_path, 2, in_two_ways) == [{"fsdp": STEP, "tensor parallel": None}] * 2


class Unwatched(TensorDataset):
    """Fails in a process whose operators are watched."""

    def __getitem__(self, index: int) -> Any:
        assert _get_current_dispatch_mode() is None
        return super().__getitem__(index)  # type: ignore[no-untyped-call]


def in_loop(flops_per_step: float | None) -> None:
    """Eight batches an epoch, four a step: the loader forks its workers within the second epoch's first one."""
    options = {"samples_per_step": 2 * BATCH, "iterations_per_step": 4, "flops_per_step": flops_per_step}
    batches = DataLoader(Unwatched(*loader(4 * BATCH).dataset.tensors), batch_size=BATCH // 2, num_workers=1)  # type: ignore[attr-defined]
    Loop(network(), batches=batches, options={**options, "warmup_steps": 1, "steps": 3}).run()


def with_ddp() -> None:
    with group():
        Loop(loops.ddp(network())).run()


PER_SAMPLE = 2 * (2 * 16 * 32 + 3 * 32 * 4)


@pytest.mark.dear
def test_in_the_records(tmp_path: Path) -> None:
    assert only(measured(tmp_path / "counted", 1, in_loop, None)).used.flops_per_sample == PER_SAMPLE
    assert only(measured(tmp_path / "said", 1, in_loop, 3e6 * 2 * BATCH)).used.flops_per_sample == 3_000_000
    assert only(measured(tmp_path / "ddp", 2, with_ddp)).used.flops_per_sample == PER_SAMPLE
