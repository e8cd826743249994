"""What a rank's heartbeat says to rank 0, what rank 0 makes of it, and how it tells the others that all is over."""

from __future__ import annotations

import dataclasses
import secrets
import select
import time
from dataclasses import dataclass
from typing import Any, Literal

from hpcddp.worker.faults import Fault, from_plain, to_plain
from hpcddp.worker.json_socket import Wire, connect, listen
from hpcddp.worker.ranks import Rank
from hpcddp.worker.watchdog.detector import LastBeat, judge, place, silent, waited_for
from hpcddp.worker.watchdog.progress import Beat

NEWS_S = 0.2
"""After the first bad news, rank 0 waits so long for more: srun ends the other ranks 0.4 s after one has died (Slurm 22.05)."""

ANSWER_S = 3.0
"""For a rank that is told that it hangs to say where."""

GONE = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
"""Wakes when a connection ends, and not for each beat that comes in."""

CALM_S = 2.0
"""While its own steps are shorter, rank 0 neither reads nor judges, as the ranks go in step. A beat then takes each rank 60 us
of a second, be it one of 2 or of 512; reading and judging would take rank 0 15 us more for every rank."""

DRAIN_EVERY_S = 60.0
"""All the same, so that beats do not fill the buffers: some 80 bytes each."""

_KEY = "hpcddp/heart"


@dataclass(frozen=True)
class Ending:
    """The end of this process: it records the fault as its own, or goes with the others, or says where it hangs itself."""

    fault: Fault
    how: Literal["records it", "with others", "hangs itself"]
    for_all: bool = False
    """end.json is this rank's to write."""


class SelfMonitor:
    """A single rank, or one that cannot be watched by others: it sees its own hanging."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self.ends = select.poll()
        """Wakes when a connection ends."""

    def news(self, now_s: float) -> Ending | None:
        """What came in since; asked when `ends` wakes."""
        return None

    def tick(self, beat: Beat, now_s: float, *, late: bool) -> Ending | None:
        """Once a second, with what this rank has to tell. `late`: this process was stopped, and so may have been the others."""
        fault = judge({self._rank.rank: LastBeat(self._rank.host, beat, now_s)}, 1, now_s) if self._rank.world == 1 else None
        return Ending(fault, "hangs itself") if fault else None

    def blamed(self, fault: Fault) -> Fault:
        """For one that only misses another rank: that rank's fault, where this one knows it."""
        return fault

    def tell(self, fault: Fault) -> None:
        """This rank's end, and why."""

    def leave(self) -> None:
        """From here on its end is no fault."""

    def close(self) -> None:
        """Also in a child, which must not keep connections open."""


class Spoke:
    """Any rank but 0. The last one, which is on another node than rank 0 if there are several, watches rank 0."""

    def __init__(self, rank: Rank, store: Any) -> None:
        self._rank = rank
        self._is_last = rank.rank == rank.world - 1
        self._left = False
        self._first: LastBeat | None = None
        port, word, self._first_host = store.get(_KEY).decode().split()
        self._wire = connect(rank.master_addr, int(port))
        self._wire.send({"hello": word, "rank": rank.rank, "host": rank.host})
        self.ends = select.poll()
        self.ends.register(self._wire.fileno(), GONE if self._is_last else GONE | select.POLLIN)

    def news(self, now_s: float) -> Ending | None:
        if not self._wire.open:
            return None
        for told in self._wire.received():
            if "over" in told:
                return Ending(from_plain(told["over"]), "with others")
            if "hung" in told:
                return Ending(from_plain(told["hung"]), "hangs itself")
            self._first = LastBeat(self._first_host, _beat(told["beat"]), now_s)
        if self._wire.open:
            return None
        self.ends.unregister(self._wire.fileno())
        if self._left:
            return None
        return Ending(_died([(0, self._first_host, self._first)]), "records it", for_all=self._is_last)

    def tick(self, beat: Beat, now_s: float, *, late: bool) -> Ending | None:
        self._wire.send({"beat": dataclasses.astuple(beat)})
        if late and self._first:
            self._first = dataclasses.replace(self._first, heard_s=now_s)
        ending = self.news(now_s) if self._is_last else None
        fault = silent({0: self._first}, now_s) if self._first and not (ending or self._left) else None
        return Ending(fault, "records it", for_all=True) if fault else ending

    def blamed(self, fault: Fault) -> Fault:
        return fault

    def tell(self, fault: Fault) -> None:
        self._wire.send({"failed": to_plain(fault)})

    def leave(self) -> None:
        self._left = True
        self._wire.send({"bye": True})

    def close(self) -> None:
        self._wire.close()


class Hub:
    """Rank 0."""

    def __init__(self, rank: Rank, store: Any) -> None:
        self._rank = rank
        self._word = secrets.token_hex(16)
        self._seen: dict[int, LastBeat] = {}
        self._own: LastBeat | None = None
        self._hosts: dict[int, str] = {}
        self._wires: dict[int, Wire] = {}
        self._new: list[Wire] = []
        self._bad: list[Fault] = []
        self._asked: tuple[Fault, float] | None = None
        self._left = False
        self._looked_s = time.monotonic()
        self.ends = select.poll()
        try:
            self._listener = listen(rank.master_addr, rank.world)
        except OSError:
            store.set(_KEY, f"0 - {rank.host}")
            raise
        store.set(_KEY, f"{self._listener.getsockname()[1]} {self._word} {rank.host}")

    def news(self, now_s: float) -> Ending | None:
        self._accept()
        self._looked_s = now_s
        if not self._read(now_s):
            return None
        time.sleep(NEWS_S)
        self._read(now_s)
        return Ending(_cause(self._bad) or (self._who_died() if self._dead() else self._bad[0]), "records it")

    def tick(self, beat: Beat, now_s: float, *, late: bool) -> Ending | None:
        self._own = LastBeat(self._rank.host, beat, now_s)
        last = self._wires.get(self._rank.world - 1)
        if last:
            last.send({"beat": dataclasses.astuple(beat)})
        if late:
            self._seen = {rank: dataclasses.replace(one, heard_s=now_s) for rank, one in self._seen.items()}
        if beat.stepping and beat.still_s < CALM_S and now_s - self._looked_s < DRAIN_EVERY_S:
            return None
        ending = self.news(now_s)
        return ending or self._judged(beat, now_s)

    def _judged(self, beat: Beat, now_s: float) -> Ending | None:
        if self._asked:
            fault, until_s = self._asked
            return Ending(fault, "records it") if now_s > until_s else None
        own = {} if self._left else {0: LastBeat(self._rank.host, beat, now_s)}
        blamed = judge({**self._seen, **own}, self._rank.world, now_s)
        if blamed is None or blamed.kind != "hung":
            return Ending(blamed, "records it") if blamed else None
        if blamed.rank == 0:
            return Ending(blamed, "hangs itself")
        self._asked = blamed, now_s + ANSWER_S
        self._wires[blamed.rank].send({"hung": to_plain(blamed)})
        return None

    def blamed(self, fault: Fault) -> Fault:
        return waited_for(fault, {**self._seen, **({0: self._own} if self._own else {})})

    def tell(self, fault: Fault) -> None:
        for wire in list(self._wires.values()):  # the main thread tells what failed, the other may see a rank end
            wire.send({"over": to_plain(fault)})

    def leave(self) -> None:
        self._left = True

    def close(self) -> None:
        for wire in (*self._wires.values(), *self._new):
            wire.close()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._new.append(Wire(peer))

    def _read(self, now_s: float) -> bool:
        """Whether there is bad news."""
        for wire in list(self._new):
            self._welcome(wire, now_s)
        for rank, wire in list(self._wires.items()):
            for told in wire.received():
                self._heard(rank, told, now_s)
            if not wire.open:
                self.ends.unregister(wire.fileno())
                wire.close()
                del self._wires[rank]
        return bool(self._bad) or self._dead() != []

    def _welcome(self, wire: Wire, now_s: float) -> None:
        """A stranger who connects does not know the word, and is sent away."""
        hello, *more = wire.received() or [None]
        if hello is None and wire.open:
            return
        self._new.remove(wire)
        if not isinstance(hello, dict) or hello.get("hello") != self._word:
            wire.close()
            return
        self._hosts[hello["rank"]], self._wires[hello["rank"]] = hello["host"], wire
        self.ends.register(wire.fileno(), GONE)
        for told in more:
            self._heard(hello["rank"], told, now_s)

    def _heard(self, rank: int, told: dict[str, Any], now_s: float) -> None:
        if rank not in self._hosts:  # it has left: its last beat may come after its goodbye
            return
        if "beat" in told:
            self._seen[rank] = LastBeat(self._hosts[rank], _beat(told["beat"]), now_s)
            return
        if "failed" in told:
            self._bad.append(self.blamed(from_plain(told["failed"])))
        self._seen.pop(rank, None)
        del self._hosts[rank]

    def _dead(self) -> list[int]:
        """Ranks whose connection has ended without a word."""
        return sorted(self._hosts.keys() - self._wires.keys())

    def _who_died(self) -> Fault:
        return _died([(rank, self._hosts[rank], self._seen.get(rank)) for rank in self._dead()])


def _cause(told: list[Fault]) -> Fault | None:
    """The first of those that do not only miss another rank; None where another rank may have died."""
    return next((fault for fault in told if fault.kind not in ("contact", "time_out")), None)


def _died(ranks: list[tuple[int, str, LastBeat | None]]) -> Fault:
    (rank, host, seen), *more = ranks
    where = f", last heard of {place(seen.beat)}" if seen else ""
    others = f" (and {', '.join(f'rank {other} on {its_host}' for other, its_host, _ in more)})" if more else ""
    words = f"died without a word{where}: it was killed, or crashed; its log may say more"
    return Fault(kind="died", rank=rank, host=host, sentence=f"rank {rank} on {host}{others} {words}")


def _beat(told: list[Any]) -> Beat:
    position, *rest = told
    return Beat(tuple(position), *rest)
