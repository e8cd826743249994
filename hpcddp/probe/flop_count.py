"""The arithmetic of a script's step, counted by torch's own formulas while the first step runs, which counts nowhere.

Counted are products and convolutions of forward and backward, a multiplication and an addition as two: what published figures for
models have. Where that is not all that computes, or not what every step does, nothing is said.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

try:
    from torch.utils.flop_counter import flop_registry
except ImportError:
    flop_registry: dict[Any, Any] = {}  # type: ignore[no-redef]

Shapes = tuple[tuple[int, ...], ...]

NO_ARITHMETIC = {"prim", "prims", "profiler", "c10d", "c10d_functional", "_c10d_functional", "fsdp"}
"""Namespaces of operators, beside torch's own `aten`, that move or look at data. What others compute is unknown."""

PRODUCTS = {
    *("mv", "addmv", "addr", "dot", "vdot", "linear", "matmul", "conv", "convolution", "attention", "rnn", "lstm", "gru"),
    *("trilinear", "cdist", "fft", "linalg", "cholesky", "solve", "ormqr", "geqrf"),
}
"""Words in the names of aten's operators that compute much; not all have a formula."""

CHEAP = {"linalg_vector_norm", "linalg_cross", "linalg__powsum", "_linalg_check_errors"}

OF_TORCH = ("torch.distributed.", "torch.nn.", "torch.utils.checkpoint")
"""Modules whose functions with a backward of their own compute by operators only. Of others the kernels are hidden, as those of a
CUDA graph are."""


class StepFlops:
    """Of one rank. `begin_batch` and `end_batch` enclose what is counted: between them the loader's workers may be forked."""

    def __init__(self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._shapes = _InputShapes(model)
        self._mode = _Counter(self._shapes)
        self._counts = self._step_is_over = False
        self._optimizer_hooks: list[Any] = []
        for each in optimizers:
            self._optimizer_hooks.append(each.register_step_pre_hook(self._mode.optimizer_begins))
            self._optimizer_hooks.append(each.register_step_post_hook(self._mode.optimizer_ended))

    @property
    def of_step(self) -> int | None:
        """Operations of the first step; None where they are not all known, or not those of every step."""
        known = self._mode.total and not self._mode.unknown and not self._shapes.vary
        return self._mode.total if known else None

    def begin_batch(self) -> None:
        if not self._step_is_over and _something_is_compiled():  # since the loop was begun
            self._mode.unknown = True
            self.end()
        if not self._counts and not self._step_is_over:
            self._mode.__enter__()  # type: ignore[no-untyped-call]
            self._counts = True

    def end_batch(self) -> None:
        if self._counts:
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._counts = False

    def end_step(self) -> None:
        """From now on only the shapes of what the model is given are compared."""
        if self._step_is_over:
            return
        self._step_is_over = True
        self.end_batch()
        for hook in self._optimizer_hooks:
            hook.remove()
        self._shapes.compare()

    def end(self) -> None:
        self.end_step()
        self._shapes.end()


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator that computes. Those of recomputed activations are not counted: no optimizer step needs them."""

    supports_higher_order_operators = True

    def __init__(self, shapes: _InputShapes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self.unknown = False
        self._shapes = shapes
        self._in_optimizer = False

    def optimizer_begins(self, *_: Any) -> None:
        self._in_optimizer = True

    def optimizer_ended(self, *_: Any) -> None:
        self._in_optimizer = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator) or any(each not in (torch.Tensor, nn.Parameter) for each in types):
            self._note_hidden(func)
            return func(*args, **kwargs)
        packet = func._overloadpacket
        if packet not in flop_registry and (made := self._decomposed(func, args, kwargs)) is not NotImplemented:
            return made
        out = func(*args, **kwargs)
        try:
            self._count(func, packet, args, {**kwargs, "out_val": out})
        except Exception:  # a formula of torch's may not know what a kernel can; the figure is not worth a run
            self.unknown = True
        return out

    def _note_hidden(self, func: Any) -> None:
        """What it comes to is not seen here: of a tensor that ranks share, each computes a part."""
        if isinstance(func, torch._ops.HigherOrderOperator) or _computes_much(func):
            self.unknown |= not self._of_optimizer(graph_task())

    def _decomposed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What an operator made of others gives, each of which is seen here; NotImplemented of any other."""
        if func is torch.ops.prim.device.default:
            return NotImplemented
        with self:
            return func.decompose(*args, **kwargs)

    def _count(self, func: Any, packet: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        task = graph_task()
        if _is_hidden(torch._C._current_autograd_node() if task != NO_TASK else None):
            self.unknown = True
        if packet not in flop_registry:
            self.unknown |= _computes_much(func) and not self._of_optimizer(task)
        elif task != NO_TASK and torch.is_grad_enabled():
            self.unknown |= task != self._shapes.recomputed_in  # derivatives of derivatives, or activations without a module
        elif not self._of_optimizer(task):
            self.total += int(flop_registry[packet](*args, **kwargs))

    def _of_optimizer(self, task: int) -> bool:
        """Not so of a closure, which is forward and backward."""
        return self._in_optimizer and task == NO_TASK and not torch.is_grad_enabled()


class _InputShapes:
    """Whether what the model is called with has the shapes of the first step in all steps that are watched."""

    def __init__(self, model: nn.Module) -> None:
        self.vary = False
        self.recomputed_in: int | None = None
        """The backward in which a module ran forward again."""
        self._first: nn.Module | None = None
        self._known = set[Shapes]()
        self._compares = False
        self._hooks = {each: each.register_forward_pre_hook(self._called, with_kwargs=True) for each in model.modules()}

    def compare(self) -> None:
        self._compares = True
        for module, hook in list(self._hooks.items()):
            if module is not self._first:
                hook.remove()
                del self._hooks[module]

    def end(self) -> None:
        for hook in self._hooks.values():
            hook.remove()

    def _called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        task = graph_task()
        if task != NO_TASK:
            self.recomputed_in = task
        if not torch.is_grad_enabled() or task != NO_TASK:
            return
        self._first = self._first or module
        if module is not self._first:
            return
        shapes = tuple(tuple(each.shape) for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor))
        if self._compares:
            self.vary |= shapes not in self._known
        else:
            self._known.add(shapes)


NO_TASK = -1


def graph_task() -> int:
    """Number of the backward that this thread is in; NO_TASK outside of any."""
    return torch._C._current_graph_task_id()


def step_flops(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> StepFlops | None:
    """None where a step cannot be watched: of what is compiled, or where this torch would raise."""
    scripted = any(isinstance(each, torch.jit.ScriptModule) for each in model.modules())
    if scripted or _something_is_compiled() or _raises_when_watched():
        return None
    return StepFlops(model, optimizers)


def _raises_when_watched() -> bool:
    """Operators of higher order did so before modes could say that they take them; only attention is used without a compiler."""
    takes_them = hasattr(TorchDispatchMode, "supports_higher_order_operators")
    return not takes_them and "torch.nn.attention.flex_attention" in sys.modules


def _something_is_compiled() -> bool:
    """torch.compile was called for anything: its functions must not run for the first time while operators are watched."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return False
    backends = getattr(getattr(dynamo, "eval_frame", None), "cached_backends", {0: dynamo})
    return any(backend is not None for backend in backends.values())


def _is_hidden(node: Any) -> bool:
    """A function with a backward of its own, whose forward may have computed out of sight."""
    function = getattr(node, "_forward_cls", None)
    return function is not None and not function.__module__.startswith(OF_TORCH)


def _computes_much(func: Any) -> bool:
    namespace, _, name = func._schema.name.partition("::")
    if namespace != "aten":
        return namespace not in NO_ARITHMETIC
    words = name.split("_")
    return name not in CHEAP and any(word.endswith("mm") or word in PRODUCTS or word[:-2] == "conv" for word in words)
