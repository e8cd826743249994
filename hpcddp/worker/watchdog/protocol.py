"""How ranks watch each other: a star whose hub, rank 0, judges beats and tells all who failed; the last spoke watches the hub."""

from __future__ import annotations

import secrets
import select
import time
from dataclasses import dataclass, replace
from typing import Literal

from hpcddp.core.attempt_records import Fault
from hpcddp.worker.master import Store, listen
from hpcddp.worker.ranks import Rank
from hpcddp.worker.watchdog.detector import LastBeat, died, fault_by_beats, first_cause, late_rank, silent_rank
from hpcddp.worker.watchdog.flight_recorder import Dump, DumpRound
from hpcddp.worker.watchdog.progress import (
    Beat,
    Connection,
    Dumped,
    DumpRequest,
    Failed,
    Goodbye,
    Hello,
    Hung,
    Message,
    Over,
    connect,
)

GATHER_S = 0.2
"""After the first fault, rank 0 waits so long for more: srun ends the other ranks 0.4 s after one has died (Slurm 22.05)."""

ANSWER_S = 3.0
"""For a rank that is told that it hangs to say where."""

GONE = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
"""Wakes when a connection ends, and not for each beat that comes in."""

CALM_S = 2.0
"""While its own steps are shorter, rank 0 neither reads nor judges, as the ranks go in step. A beat then takes each rank 60 us
of a second, be it one of 2 or of 512; reading and judging would take rank 0 15 us more for every rank."""

READ_EVERY_S = 60.0
"""All the same, so that beats do not fill the buffers: some 130 bytes each."""

_KEY = "hpcddp/watchdog"


@dataclass(frozen=True)
class Ending:
    """The end of this process, and why."""

    fault: Fault
    action: Literal["record", "follow", "locate"]
    """It records the fault as its own; it goes with the others; it hangs itself, and says where."""
    for_all: bool = False
    """end.json is this rank's to write."""


class SelfMonitor:
    """A single rank, or one that cannot be watched by others: it notices its own hanging."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self.ends = select.poll()
        """Wakes when a connection ends."""

    def receive(self, now_s: float) -> Ending | None:
        """Reads what came in; called when `ends` wakes."""
        return None

    def tick(self, beat: Beat, now_s: float, *, late: bool) -> Ending | None:
        """Once a second, with this rank's beat. `late`: this process was stopped, and so may have been the others."""
        fault = (
            fault_by_beats({self._rank.rank: LastBeat(self._rank.host, beat, now_s)}, 1, now_s) if self._rank.world == 1 else None
        )
        return Ending(fault, "locate") if fault else None

    def cause_of(self, fault: Fault) -> Fault:
        """For one that only misses another rank: that rank's fault, where this one knows it."""
        return fault

    def report(self, fault: Fault) -> None:
        """Tells the others of this rank's end, and why."""

    def leave(self) -> None:
        """From here on its end is no fault."""

    def close(self) -> None:
        """Also in a child, which must not keep connections open."""


class Spoke:
    """Any rank but 0. The last one, which is on another node than rank 0 if there are several, watches rank 0."""

    def __init__(self, rank: Rank, store: Store, dump: Dump) -> None:
        self._rank, self._dump = rank, dump
        self._is_last = rank.rank == rank.world - 1
        self._left = False
        self._beat_of_hub: LastBeat | None = None
        port, token, self._host_of_hub = store.get(_KEY).decode().split()
        self._hub = connect(rank.master_addr, int(port))
        self._hub.send(Hello(token, rank.rank, rank.host))
        self.ends = select.poll()
        self.ends.register(self._hub.fileno(), GONE if self._is_last else GONE | select.POLLIN)

    def receive(self, now_s: float) -> Ending | None:
        if not self._hub.open:
            return None
        for message in self._hub.received():
            if isinstance(message, Over):
                return Ending(message.fault, "follow")
            if isinstance(message, Hung):
                return Ending(message.fault, "locate")
            if isinstance(message, DumpRequest):
                self._hub.send(Dumped(self._dump() or {}))
            if isinstance(message, Beat):
                self._beat_of_hub = LastBeat(self._host_of_hub, message, now_s)
        if self._hub.open:
            return None
        self.ends.unregister(self._hub.fileno())
        if self._left:
            return None
        return Ending(died([(0, self._host_of_hub, self._beat_of_hub)]), "record", for_all=self._is_last)

    def tick(self, beat: Beat, now_s: float, *, late: bool) -> Ending | None:
        self._hub.send(beat)
        if late and self._beat_of_hub:
            self._beat_of_hub = replace(self._beat_of_hub, heard_s=now_s)
        ending = self.receive(now_s) if self._is_last else None
        if ending or self._left or not self._beat_of_hub:
            return ending
        fault = silent_rank({0: self._beat_of_hub}, now_s)
        return Ending(fault, "record", for_all=True) if fault else None

    def cause_of(self, fault: Fault) -> Fault:
        return fault

    def report(self, fault: Fault) -> None:
        self._hub.send(Failed(fault))

    def leave(self) -> None:
        self._left = True
        self._hub.send(Goodbye())

    def close(self) -> None:
        self._hub.close()


class Hub:
    """Rank 0."""

    def __init__(self, rank: Rank, store: Store, dump: Dump) -> None:
        self._rank, self._dump = rank, dump
        self._round: DumpRound | None = None
        """While ranks seem to hang."""
        self._token = secrets.token_hex(16)
        self._hosts: dict[int, str] = {}
        """Of the ranks that are watched: they have said hello, and not goodbye."""
        self._spokes: dict[int, Connection] = {}
        self._beats: dict[int, LastBeat] = {}
        self._own: LastBeat | None = None
        self._unknown: list[Connection] = []
        """Connections that have not said hello yet."""
        self._faults: list[Fault] = []
        self._hung: tuple[Fault, float] | None = None
        """Of a rank that was told that it hangs, and until when it may answer."""
        self._left = False
        self._read_at_s = time.monotonic()
        self.ends = select.poll()
        try:
            self._listener = listen(rank.master_addr, rank.world)
        except OSError:
            store.set(_KEY, f"0 - {rank.host}")
            raise
        store.set(_KEY, f"{self._listener.getsockname()[1]} {self._token} {rank.host}")

    def receive(self, now_s: float) -> Ending | None:
        self._accept()
        self._read_at_s = now_s
        if not self._read(now_s):
            return None
        time.sleep(GATHER_S)
        self._read(now_s)
        dead = [(rank, self._hosts[rank], self._beats.get(rank)) for rank in self._dead()]
        return Ending(first_cause(self._faults) or (died(dead) if dead else self._faults[0]), "record")

    def tick(self, beat: Beat, now_s: float, *, late: bool) -> Ending | None:
        self._own = LastBeat(self._rank.host, beat, now_s)
        last = self._spokes.get(self._rank.world - 1)
        if last:
            last.send(beat)
        if late:
            self._beats = {rank: replace(each, heard_s=now_s) for rank, each in self._beats.items()}
        if beat.stepping and beat.still_s < CALM_S and now_s - self._read_at_s < READ_EVERY_S:
            return None
        return self.receive(now_s) or self._judge(beat, now_s)

    def _judge(self, beat: Beat, now_s: float) -> Ending | None:
        if self._hung:
            fault, until_s = self._hung
            return Ending(fault, "record") if now_s > until_s else None
        own = {} if self._left else {0: LastBeat(self._rank.host, beat, now_s)}
        found = fault_by_beats({**self._beats, **own}, self._rank.world, now_s)
        if found is None or not self._dumped(now_s):
            self._round = self._round if found else None
            return None
        words = self._round.words(self._rank.world) if self._round else None
        found = replace(found, sentence=f"{found.sentence}; {words}") if words else found
        if found.kind != "hung":
            return Ending(found, "record")
        if found.rank == 0:
            return Ending(found, "locate")
        self._hung = found, now_s + ANSWER_S
        self._spokes[found.rank].send(Hung(found))
        return None

    def _dumped(self, now_s: float) -> bool:
        """Whether ranks have said which collectives they are in, as far as they do; the first time they are requested to."""
        if self._round:
            return self._round.is_over(now_s, self._spokes)
        own = self._dump()
        if own is None:
            return True
        self._round = DumpRound(own, now_s)
        for spoke in self._spokes.values():
            spoke.send(DumpRequest())
        return False

    def cause_of(self, fault: Fault) -> Fault:
        return late_rank(fault, {**self._beats, **({0: self._own} if self._own else {})})

    def report(self, fault: Fault) -> None:
        for spoke in list(self._spokes.values()):  # the main thread reports what failed, the other may see a rank end
            spoke.send(Over(fault))

    def leave(self) -> None:
        self._left = True

    def close(self) -> None:
        for connection in (*self._spokes.values(), *self._unknown):
            connection.close()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._unknown.append(Connection(peer))

    def _read(self, now_s: float) -> bool:
        for connection in list(self._unknown):
            self._admit(connection, now_s)
        for rank, spoke in list(self._spokes.items()):
            for message in spoke.received():
                self._take(rank, message, now_s)
            if not spoke.open:
                self.ends.unregister(spoke.fileno())
                spoke.close()
                del self._spokes[rank]
        return bool(self._faults) or self._dead() != []

    def _admit(self, connection: Connection, now_s: float) -> None:
        """A stranger who connects does not know the token, and is sent away."""
        messages = connection.received()
        if not messages and connection.open:
            return
        self._unknown.remove(connection)
        hello = messages[0] if messages else None
        if not isinstance(hello, Hello) or hello.token != self._token:
            connection.close()
            return
        self._hosts[hello.rank], self._spokes[hello.rank] = hello.host, connection
        self.ends.register(connection.fileno(), GONE)
        for message in messages[1:]:
            self._take(hello.rank, message, now_s)

    def _take(self, rank: int, message: Message, now_s: float) -> None:
        if rank not in self._hosts:  # it has left: its last beat may come after its goodbye
            return
        if isinstance(message, Dumped):
            if self._round:
                self._round.add(rank, message.groups)
            return
        if isinstance(message, Beat):
            self._beats[rank] = LastBeat(self._hosts[rank], message, now_s)
            return
        if isinstance(message, Failed):
            self._faults.append(self.cause_of(message.fault))
        self._beats.pop(rank, None)
        del self._hosts[rank]

    def _dead(self) -> list[int]:
        return sorted(self._hosts.keys() - self._spokes.keys())
