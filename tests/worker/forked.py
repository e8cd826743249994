"""Ranks as real processes, forked from this one so that torch and the worker are imported once.

Nothing here may run a backward pass or a parallel region in the parent: forked children could not start their own.
"""

from __future__ import annotations

import contextlib
import csv
import ctypes
import json
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # what counting a model's operations imports in rank 0, a second each time
import torch.utils.flop_counter

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Point
from hpcddp.core.records import steps_file
from hpcddp.worker import attempt, script_run  # noqa: F401 - what each rank imports, a quarter of a second each time
from hpcddp.worker.main import run
from hpcddp.worker.ranks import this_rank as rank_of
from hpcddp.worker.rendezvous import join
from tests.worker import given

JOB = "7"
TIMEOUT_S = 120.0
PR_SET_PDEATHSIG = 1
"""prctl(2)."""


@dataclass(frozen=True)
class Outcome:
    """How one rank ended: its exit code, what its function returned, what it printed."""

    code: int
    value: Any
    output: str


def ranks(
    folder: Path, world: int, function: Callable[..., Any], *arguments: Any, nodes: int = 1, timeout_s: float = TIMEOUT_S
) -> list[Outcome]:
    """Calls `function(*arguments)` in `world` processes with the local launcher's variables; all are gone afterwards."""
    pids = list[int]()
    folder.mkdir(parents=True, exist_ok=True)
    with held_port() as port:
        try:
            for rank in range(world):
                pids.append(_fork(folder, rank, _environment(rank, world, nodes, port), function, arguments))
            codes = _wait(pids, timeout_s)
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
    return [_outcome(folder, rank, code) for rank, code in enumerate(codes)]


def values(folder: Path, world: int, function: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
    """What `function` returned in each rank; fails with the output of a rank that did not. Options are those of `ranks`."""
    outcomes = ranks(folder, world, function, *arguments, **options)
    for rank, outcome in enumerate(outcomes):
        assert outcome.code == 0, f"rank {rank} ended with {outcome.code}:\n{outcome.output}"
    return [outcome.value for outcome in outcomes]


@dataclass(frozen=True)
class Ran:
    """An attempt that has ended."""

    attempt: Path
    outcomes: list[Outcome]

    def read(self, name: str) -> Any:
        """One of its records."""
        return json.loads((self.attempt / name).read_text())

    @property
    def end(self) -> Any:
        return self.read("end.json")

    @property
    def codes(self) -> list[int]:
        return [outcome.code for outcome in self.outcomes]

    @property
    def gates(self) -> dict[str, Any]:
        return {gate["name"]: gate for gate in self.end["gates"]}

    @property
    def failed(self) -> dict[str, str]:
        """Gates that did not pass, with their evidence."""
        assert self.end["state"] == "done", self.end["reason"]
        return {name: gate["evidence"] for name, gate in self.gates.items() if not gate["passed"]}

    def rows(self, rank: int) -> list[dict[str, str]]:
        """Of its steps."""
        with steps_file(self.attempt, rank).open(newline="") as lines:
            return list(csv.DictReader(lines))


def ran(  # noqa: PLR0913 - what differs between runs of tests
    study: Path,
    what: Point,
    plant: Callable[[int], object] | None = None,
    *,
    may_fail: bool = False,
    job: str = JOB,
    output: Path | None = None,
    **spec: Any,
) -> Ran:
    """A run of the point by real ranks, in each of which `plant(rank)` was called first; all end well unless they may fail."""
    chosen, folder = given.job(study, what, **spec), output or study / f"output{job}"
    outcomes = ranks(folder, what.ranks, _run_with, job, plant, spec_to_dict(chosen), nodes=what.layout.nodes)
    found = Ran(chosen.attempt_dir(job, 0), outcomes)
    assert may_fail or not any(found.codes), "\n".join(outcome.output for outcome in outcomes)
    return found


def _run_with(job: str, plant: Callable[[int], object] | None, spec: dict[str, Any]) -> Any:
    os.environ["HPCDDP_JOB"] = job
    if plant:
        plant(this_rank())
    return run(spec)


def this_rank() -> int:
    """In a rank."""
    return int(os.environ["SUBMITIT_LOCAL_GLOBALID"])


def in_group(folder: Path, world: int, function: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
    """The same of `function(group, *arguments)`, in ranks that have met and leave together."""
    return values(folder, world, _joined, function, arguments, **options)


def _joined(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    group = join(rank_of("local"), "cpu")
    found = function(group, *arguments)
    group.leave()
    return found


def _environment(rank: int, world: int, nodes: int, port: int) -> dict[str, str]:
    return {
        "SUBMITIT_LOCAL_GLOBALID": str(rank),
        "SUBMITIT_LOCAL_LOCALID": str(rank % (world // nodes)),
        "SUBMITIT_LOCAL_NODEID": str(rank // (world // nodes)),
        "SUBMITIT_LOCAL_NTASKS": str(world),
        "SUBMITIT_LOCAL_JOB_NUM_NODES": str(nodes),
        "SLURMD_NODENAME": f"node{rank // (world // nodes)}",
        "HPCDDP_JOB": JOB,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _fork(folder: Path, rank: int, env: dict[str, str], function: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        return pid
    os.setpgrp()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # where this process is ended from outside, no rank stays
    code = 1
    try:
        with _output_to(folder / f"{rank}.out"):
            code = _child(folder / f"{rank}.value", env, function, arguments)
    finally:
        os._exit(code)


def _child(result: Path, env: dict[str, str], function: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
    try:
        os.environ.update(env)
        torch.set_num_threads(1)
        result.write_bytes(pickle.dumps(function(*arguments)))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


@contextlib.contextmanager
def _output_to(file: Path) -> Iterator[None]:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    yield
    sys.stdout.flush()
    sys.stderr.flush()


def _wait(pids: list[int], timeout_s: float) -> list[int]:
    codes: dict[int, int] = {}
    give_up_at = time.monotonic() + timeout_s
    while len(codes) < len(pids):
        assert time.monotonic() < give_up_at, f"ranks still run after {timeout_s:.0f} s"
        for pid in set(pids) - set(codes):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return [codes[pid] for pid in pids]


def _outcome(folder: Path, rank: int, code: int) -> Outcome:
    file = folder / f"{rank}.value"
    value = pickle.loads(file.read_bytes()) if file.exists() else None
    return Outcome(code, value, (folder / f"{rank}.out").read_text())


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A port that Linux gives to nobody else inside the block; whoever is told it may listen there (SO_REUSEADDR)."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
