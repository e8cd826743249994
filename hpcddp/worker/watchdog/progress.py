"""How far a rank is and whether it is alive, read by a thread beside its steps; and the messages, a line of JSON each."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddp.core.attempt_records import Fault
from hpcddp.worker.timing.steptimer import StepTimer

HANG_VARIABLE = "HPCDDP_HANG_S"

HANG_S = 18.0
"""Without progress and without a sign of life. A run on 2 nodes was over 25 s after a rank had stopped."""

LONGEST_S = 540.0
"""Whatever it does: before the collectives' own time-out of 10 min, after which NCCL ends the process without a word."""

TIMES_LONGEST = 10.0
"""A rank whose longest step took 5 s may be still for 50 s."""

BUSY = 0.05
"""Of a processor: with less, a rank and its children are idle. gloo's own threads took 0.007 while all waits, NCCL's less."""

FIRST_STEPS = 2
"""They take what they take: kernels are chosen, buckets rebuilt, loaders started."""

LATE_S = 5.0
"""Two beats further apart than this: this process itself was stopped, or starved, and nothing is known of the time between."""

Position = tuple[int, int]
"""Steps closed, and marks in the step after that."""

BEFORE, AFTER = (-1, 0), (1 << 60, 0)
"""Positions before the first step, and when the steps are over."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Beat:
    """A heartbeat: what a rank tells of itself once a second."""

    steps: int
    """Closed."""
    marks: int
    """In the step after those."""
    after: str | None
    """The part of the step that was marked last; None where none was."""
    stepping: bool
    """In the timed steps, past the first ones: outside of them nobody knows how long anything may take."""
    still_s: float
    """Since the position changed."""
    idle_s: float
    """Since the position changed or the rank showed a sign of life."""
    patience_s: float
    """How long idle_s may be."""

    @property
    def position(self) -> Position:
        """The rank with the lowest is the one that others wait for."""
        return self.steps, self.marks


class RankProgress:
    """Of this rank. `limit_s`: how long it may stand still, as the user set it; None: HANG_S without a sign of life."""

    def __init__(self, limit_s: float | None, now_s: float) -> None:
        self._timer: StepTimer | None = None
        self._first_step: int | None = None
        self._limit_s = limit_s
        self._last_place = (BEFORE, False)
        self._since_s = self._alive_s = self._beat_at_s = now_s
        self._cpu_s = 0.0
        self._longest_s = 0.0
        self.late = False
        """At its last beat: LATE_S had passed since the one before."""
        self._reader_pid: int | None = None

    def watch_steps(self, timer: StepTimer | None, reader_pid: int | None = None) -> None:
        """The steps that the timer times begin; None: they are over. `reader_pid`: the process that reads the node's counters."""
        self._timer, self._reader_pid = timer, reader_pid
        if timer:
            self._first_step = timer.position()[0]

    def beat(self, now_s: float) -> Beat:
        """Called about once a second, by one thread."""
        position, after, stepping = self._where()
        self.late = now_s - self._beat_at_s > LATE_S
        if self.late:
            self._since_s = self._alive_s = now_s
        if (position, stepping) != self._last_place:
            if stepping and self._last_place[1]:
                self._longest_s = max(self._longest_s, now_s - self._since_s)
            self._last_place, self._since_s, self._alive_s = (position, stepping), now_s, now_s
        elif self._limit_s is None and self._is_alive(now_s - self._beat_at_s):
            self._alive_s = now_s
        self._beat_at_s = now_s
        patience_s = self._limit_s or max(HANG_S, TIMES_LONGEST * self._longest_s)
        return Beat(*position, after, stepping, now_s - self._since_s, now_s - self._alive_s, min(patience_s, LONGEST_S))

    def _where(self) -> tuple[Position, str | None, bool]:
        timer, first_step = self._timer, self._first_step
        if timer is None or first_step is None:
            return (BEFORE if first_step is None else AFTER), None, False
        closed, marks, after = timer.position()
        return (closed, marks), after, timer.going and closed >= first_step + FIRST_STEPS

    def _is_alive(self, elapsed_s: float) -> bool:
        """Whether this process or its children computed meanwhile, or one of them waits for a disk."""
        cpu_s, waits_for_disk = signs_of_life(self._reader_pid)
        computed_s, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        return waits_for_disk or computed_s > BUSY * elapsed_s


def hang_limit_s() -> float | None:
    """HPCDDP_HANG_S; None where it is not set, or is no number of seconds."""
    text = os.environ.get(HANG_VARIABLE, "")
    try:
        return float(text) if text and float(text) > 0 else None
    except ValueError:
        return None


def signs_of_life(reader_pid: int | None = None) -> tuple[float, bool]:
    """Seconds that this process and its children have computed; whether its main thread or a child is in an uninterruptible
    wait, as for a disk or a file server (state D of proc(5)). `reader_pid`, a child that computes whatever the rank does, is left
    out. Where there is no /proc, nobody is ever idle."""
    main = f"/proc/{os.getpid()}/task/{os.getpid()}"
    try:
        children = Path(f"{main}/children").read_text().split()
        stats = [_stat(f"{main}/stat"), *(_stat(f"/proc/{child}/stat") for child in children if int(child) != reader_pid)]
    except OSError:
        return time.process_time(), True
    return time.process_time() + sum(cpu_s for cpu_s, _ in stats[1:]), any(disk for _, disk in stats)


def _stat(file: str) -> tuple[float, bool]:
    """Seconds computed, and whether in state D; nothing of a process that has ended meanwhile."""
    try:
        state, *rest = Path(file).read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0, False
    return (int(rest[10]) + int(rest[11])) / _TICKS_PER_S, state == "D"


CONNECT_S = 20.0


@dataclass(frozen=True)
class Hello:
    """The first message of a rank to rank 0."""

    token: str
    """Rank 0's, from the rendezvous' store: who does not know it is no rank."""
    rank: int
    host: str


@dataclass(frozen=True)
class Goodbye:
    """To rank 0: from here on the end of this rank is no fault."""


@dataclass(frozen=True)
class Failed:
    """To rank 0: this rank ends."""

    fault: Fault


@dataclass(frozen=True)
class Over:
    """From rank 0: all ranks end."""

    fault: Fault


@dataclass(frozen=True)
class Hung:
    """From rank 0: this rank hangs, and ends once it has said where."""

    fault: Fault


@dataclass(frozen=True)
class DumpRequest:
    """From rank 0: ranks seem to hang, and each says which collectives it has begun."""


@dataclass(frozen=True)
class Dumped:
    """To rank 0: process group -> its state, as flight_recorder.dump_collectives has it."""

    groups: dict[str, Any]


Message = Hello | Beat | Goodbye | Failed | Over | Hung | DumpRequest | Dumped

_KINDS = {kind.__name__: kind for kind in (Hello, Beat, Goodbye, Failed, Over, Hung, DumpRequest, Dumped)}


def encode_message(message: Message) -> bytes:
    """A line."""
    return json.dumps({type(message).__name__: dataclasses.asdict(message)}, separators=(",", ":")).encode() + b"\n"


def decode_message(line: bytes) -> Message:
    """The reverse; ValueError for what is no message."""
    try:
        ((kind, fields),) = json.loads(line).items()
        if "fault" in fields:
            fields["fault"] = Fault(**fields["fault"])
        message: Message = _KINDS[kind](**fields)
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("not a message of a rank") from error
    return message


class Connection:
    """One end of it, which never waits."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self._peer = peer
        self._incomplete_line = b""
        self.open = True
        """Until the other end has gone."""

    def fileno(self) -> int:
        return self._peer.fileno()

    def send(self, message: Message) -> None:
        """What cannot be sent at once is lost: the other end does not read, or has gone."""
        with contextlib.suppress(OSError):
            self._peer.send(encode_message(message))

    def received(self) -> list[Message]:
        """What came in since; `open` says afterwards whether there may be more."""
        data = self._incomplete_line
        try:
            while chunk := self._peer.recv(65536):
                data += chunk
            self.open = False
        except BlockingIOError:
            pass
        except OSError:
            self.open = False
        *lines, self._incomplete_line = data.split(b"\n")
        try:
            return [decode_message(line) for line in lines]
        except ValueError:  # a stranger, who does not speak as a rank does
            self.open = False
            return []

    def close(self) -> None:
        self._peer.close()


def connect(address: str, port: int) -> Connection:
    """OSError where it cannot be reached."""
    peer = socket.create_connection((address, port), timeout=CONNECT_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(peer)
