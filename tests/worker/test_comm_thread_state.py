"""A thread of gloo's that was told so keeps what Python knows of it from one callback to the next."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path

import torch
from torch.futures import Future

from hpcddp.worker.comm.hook import ThreadStates
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from tests.worker import forked

CALLBACKS = 50


def calls_known(retain: bool) -> list[list[int]]:
    """Of each of gloo's threads, at each of its callbacks, how many it has run before, as far as it knows."""
    group = join(this_rank("local"), "cpu")
    gloo = torch.distributed.distributed_c10d._get_default_group()
    of_thread, states = threading.local(), ThreadStates()
    known = defaultdict[int, list[int]](list)

    def ended(_: Future[list[torch.Tensor]]) -> None:
        calls = getattr(of_thread, "calls", 0)
        known[threading.get_ident()].append(calls)
        of_thread.calls = calls + 1
        if retain:
            states.retain()

    while sum(map(len, known.values())) < CALLBACKS:
        gloo.allreduce([torch.ones(1)]).get_future().then(ended).wait()
        known.pop(threading.get_ident(), None)  # what had ended before it was waited for
    group.leave()
    return list(known.values())


def test_a_thread_that_keeps_its_state_knows_its_earlier_calls(tmp_path: Path) -> None:
    """Without, all it knew is gone when a callback ends."""
    (forgotten,) = forked.values(tmp_path / "forgotten", 1, calls_known, False)
    assert all(set(calls) == {0} for calls in forgotten)
    (known,) = forked.values(tmp_path / "known", 1, calls_known, True)
    assert all(calls == list(range(len(calls))) for calls in known)
