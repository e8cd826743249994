"""Parameters of which each rank holds a part: torch's fully_shard over the blocks of a model, then over the rest of it.

What ranks wait for is marked: parameters gathered before forward and backward, gradients scattered after it.

By torch's own hooks of modules and tensors, around those of fully_shard, in the stream that computes. On CUDA a part is therefore
what the computation waits for, and the copies of what came; what travels behind the computation is in no part. gloo's collectives
on a CPU return when they are done, so that all of their time is exposed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Workload
from hpcddp.worker.training.backward import Mark

COMPUTED_IN = {"fp16": torch.float16, "bf16": torch.bfloat16}
"""By precision, what parameters are gathered in and a block computes in. Shards, gradients that travel, the optimizer, BatchNorm
and the loss stay fp32, as with autocast; what autocast would leave in fp32 within a block (LayerNorm, softmax) does not."""

CONTAINERS = (nn.Sequential, nn.ModuleList)

PLACES = ("torch.distributed.fsdp", "torch.distributed._composable.fsdp")
"""Of fully_shard: since torch 2.6, and in 2.4 and 2.5."""


class Sharding:
    """A model of which each rank holds a part."""

    def __init__(self, module: nn.Module, parts: list[nn.Module]) -> None:
        self.module = module
        self.parts = parts
        """What is gathered at a time: blocks, and last the model with what is in none of them."""
        self.backward = ShardedBackward()
        self._exchanges = True

    def exchange(self, now: bool) -> None:
        """Whether the next backward scatters gradients; otherwise each rank adds up all of its own, unsharded."""
        if now != self._exchanges:
            root: Any = self.module
            root.set_requires_gradient_sync(now)
            self._exchanges = now

    def reshard(self) -> None:
        """After a forward that no backward follows: the model has its shards again, and values put there are those it uses."""
        for part in self.parts:
            sharded: Any = part
            sharded.reshard()


def shard(module: nn.Module, workload: Workload, device: torch.device, shards: int) -> Sharding:
    """Shards the model, which lies in the host's memory, over `shards` ranks at a time; HpcddpError where torch cannot.

    All ranks call it with equal parameters, of which each retains its part: nothing travels. Blocks go to the device one by one,
    so that no GPU ever holds all parameters. BatchNorm computes in fp32, and what a block has of it is gathered apart.
    """
    fully_shard, policy_class = _fully_shard()
    computed_in = COMPUTED_IN.get(workload.precision)
    chosen: dict[str, Any] = {"mesh": _mesh(device, shards), "reshard_after_forward": workload.fsdp.reshard_after_forward}
    types = {"param_dtype": computed_in, "reduce_dtype": torch.float32} if computed_in else {}
    of_block = {"mp_policy": policy_class(**types)}
    of_rest = {"mp_policy": policy_class(**types, output_dtype=types.get("reduce_dtype")), "reshard_after_forward": False}
    parts: list[nn.Module] = []
    for part in (*blocks(module), module):
        norms = [each for each in part.modules() if isinstance(each, _BatchNorm) and each.affine and each not in parts]
        if computed_in and norms:
            fully_shard(norms, **chosen)
            parts += norms
        if part not in parts:
            parts.append(fully_shard(part, **{**chosen, **(of_rest if part is module else of_block)}))
    return Sharding(module, parts)


def blocks(module: nn.Module) -> Iterator[nn.Module]:
    """What the model's containers list, outermost first: encoder blocks, residual blocks, layers. All have parameters."""
    for child in module.children():
        if isinstance(module, CONTAINERS) and not isinstance(child, CONTAINERS):
            if next(child.parameters(), None) is not None:
                yield child
        else:
            yield from blocks(child)


def _mesh(device: torch.device, shards: int) -> Any:
    """All ranks in one line, or a line for each copy; ranks of a node follow each other."""
    from torch.distributed.device_mesh import init_device_mesh

    ranks = dist.get_world_size()
    if shards == ranks:
        return init_device_mesh(device.type, (ranks,))
    return init_device_mesh(device.type, (ranks // shards, shards), mesh_dim_names=("replicate", "shard"))


def _fully_shard() -> tuple[Callable[..., Any], Callable[..., Any]]:
    for place in PLACES:
        try:
            found = importlib.import_module(place)
            return found.fully_shard, found.MixedPrecisionPolicy
        except (ImportError, AttributeError):
            continue
    raise HpcddpError(
        f"workload.parallel fsdp and hsdp need torch 2.4 (fully_shard), but this is {torch.__version__}. "
        f"Install a newer torch in the compute environment, or set parallel to ddp."
    )


class ShardedBackward:
    """Marks the end of backward, in which ranks wait for parameters and scatter gradients.

    With `marks_exchange` these waits are marked apart, and here what is left when the computation is over: the
    wait for the last gradients. Autograd runs callbacks in the order they were queued: ours is queued by the loss, fully_shard's,
    which waits, by what the loss was computed of.
    """

    def __init__(self) -> None:
        self.marks_exchange = False
        self._mark: Mark | None = None

    def __call__(self, loss: torch.Tensor, mark: Mark, _: Callable[[], None] | None = None) -> None:
        if not self.marks_exchange:
            loss.backward()  # type: ignore[no-untyped-call]
            mark("backward")
            return
        self._mark = mark
        loss.register_hook(self._queue)  # type: ignore[no-untyped-call]
        loss.backward()  # type: ignore[no-untyped-call]
        mark("reduce_scatter")

    def _queue(self, _: torch.Tensor) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(self._computed)

    def _computed(self) -> None:
        if self._mark:
            self._mark("backward")


METHOD = "hooks of sharded modules: what the computation waits for parameters and gradients, with the copies of what came"
"""As end.json names it."""


def mark_exchanges(sharding: Sharding, mark: Mark) -> None:
    """From now on each forward and backward of a step is marked; forwards without gradients, as in evaluation, are not."""
    sharding.backward.marks_exchange = True
    for part in sharding.parts:
        _Marks(mark).around(part)


class _Marks:
    """Around one module, before and behind the hooks of fully_shard, which are there already.

    Hooks of a tensor run in the order in which they were registered. A module's inputs pass through a function of fully_shard's,
    in whose backward gradients are scattered: the tensors that the module gets come before it in backward, those it was called
    with behind it. Where no input has a gradient, as of the first block, that happens when backward is over.
    """

    def __init__(self, mark: Mark) -> None:
        self._mark = mark

    def around(self, module: nn.Module) -> None:
        module.register_forward_pre_hook(self._before_gathering, prepend=True)
        module.register_forward_pre_hook(self._gathered)
        module.register_forward_hook(self._before_output, prepend=True)
        module.register_forward_hook(self._output)

    def _before_gathering(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        if torch.is_grad_enabled():
            self._mark("forward")
            self._hook(inputs, "reduce_scatter")

    def _gathered(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        if torch.is_grad_enabled():
            self._mark("all_gather_forward")
            self._hook(inputs, "backward")

    def _before_output(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        self._hook((output,), "backward")

    def _output(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        self._hook((output,), "all_gather_backward")

    def _hook(self, values: tuple[Any, ...], part: str) -> None:
        """The first tensor with a gradient stands for all: what comes of a module is computed at one time."""
        for tensor in _with_gradient(values):
            tensor.register_hook(lambda _: self._mark(part))  # type: ignore[no-untyped-call]
            return


def _with_gradient(values: tuple[Any, ...]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _with_gradient(tuple(value))
        elif isinstance(value, torch.Tensor) and value.requires_grad:
            yield value
