"""A communication hook for DDP that averages gradients as DDP itself does and times each all-reduce."""

# No `from __future__ import annotations`: DDP compares a hook's annotations with its own types, and text equals none of them.

import ctypes
import threading
import weakref

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hpcddp.worker.timing.steptimer import StepTimer

_enter = ctypes.pythonapi.PyGILState_Ensure


class ThreadStates:
    """Of threads that C++ began: those that called `retain` keep theirs until the process ends.

    Otherwise every call of Python in such a thread makes a thread state and the memory of its frames, and gives both back, which
    takes longer than a communication hook does all in all. Torch retains those of its autograd's threads as well.
    """

    def __init__(self) -> None:
        self._retained = set[int]()

    def retain(self) -> None:
        thread = threading.get_ident()
        if thread not in self._retained:
            self._retained.add(thread)
            _enter()


_timers = weakref.WeakKeyDictionary[DistributedDataParallel, list[StepTimer]]()
"""Whose hook times the buckets: DDP takes one hook for good, and each measurement has a timer of its own."""


def time_buckets(ddp: DistributedDataParallel, timer: StepTimer) -> None:
    """From now on `timer` times every bucket of gradients: when its gradients were there and when its all-reduce ended.

    Only steps of `timer` may run backward() then: a bucket belongs to the step that is open. All of a step's buckets have
    ended when backward() returns, since DDP waits there for the futures that the callbacks below complete. On CUDA the callback
    runs at once, in a stream of its own that waits for the all-reduce, so that an event recorded there is the end of it; on gloo
    it runs in one of gloo's threads when the all-reduce has ended.

    Parameters are bit for bit those without the hook: DDP's own all-reduce also multiplies by 1 / ranks beforehand. Dividing,
    before or after, differs from three ranks on. One rank has nothing to average, and is spared the pass over its gradients.
    The group is called directly because dist.all_reduce costs 4 us more a bucket; the share of float32 is a tensor because torch
    takes 10 us to make one of a number. While gloo's thread runs Python the next bucket waits, so all that can be is done before
    the all-reduce begins.
    """
    if ddp in _timers:
        _timers[ddp][:] = [timer]
        return
    of_now = [timer]
    group = ddp.process_group
    averages, share = group.size() > 1, 1.0 / group.size()
    shares = {torch.float32: torch.tensor(share)}
    stamp, retain_thread_state = timer.clock.stamp, ThreadStates().retain

    def all_reduce(
        _: None,
        bucket: dist.GradBucket,  # type: ignore[name-defined]  # documented, but not in __all__
    ) -> torch.futures.Future[torch.Tensor]:
        ready = stamp()
        gradients = bucket.buffer()
        timed = of_now[0].bucket(bucket.index(), gradients.nbytes, ready)

        def ended(reduced: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            timed.done = stamp()
            retain_thread_state()
            return reduced.value()[0]  # raises what the all-reduce failed of

        if averages:
            gradients.mul_(shares.get(gradients.dtype, share))
        return group.allreduce([gradients]).get_future().then(ended)

    ddp.register_comm_hook(None, all_reduce)
    _timers[ddp] = of_now
