"""All tests, as `make test` runs them: `python -m tests`; with --quick those of `make quick`.

They are collected once. Then this process forks: three processes take module after module, of which one has the tests on a Slurm
first, and mostly waits for it. Its results are shown as they come, those of the others when they have ended. Tests in which
workers time themselves (marked `timed`) come last and by themselves: beside others they would time these.
"""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import pytest

from hpcddp.core.bootstrap import die_with_parent
from tests.twin.daemons import ending_signals_raise

NAMES = ("of process 1", "of process 2", "of process 3")
MOST_CPU_S = 2
"""Of a test that is not marked to take more: four times what an unmarked one takes on the machine where it is written. Held by
`make quick`: beside a Slurm and ranks that train everything takes longer."""

ALL = ("-m", "not soak")
QUICK = (f"--most-cpu={MOST_CPU_S}", "-m", "not slurm and not soak and not timed and not gpu and (not dear or quick)")

Chunk = Sequence[pytest.Item]
"""Tests that one process runs one after the other: those of a module, or all that use controllers, which are up once."""

NUMBER_BYTES = 4
"""Of a chunk's number in the pipe from which processes take theirs; 16,000 of them fit into it."""


class Forked:
    """A plug-in of pytest: what was collected runs in processes of its own."""

    def __init__(self) -> None:
        self.name: str | None = None
        """That of the process; None of the one that collects."""
        self.codes: dict[str, int] = {}
        self._running: dict[int, str] = {}
        self._outputs: list[IO[str]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """In place of pytest's, which has to say what could not be collected."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        on_slurm = [item for item in session.items if _is(item, "slurm") and not _is(item, "controllers")]
        timed = [item for item in session.items if _is(item, "timed") and item not in set(on_slurm)]
        apart = {*on_slurm, *timed}
        dealt = _dealt(_chunks(item for item in session.items if item not in apart))
        gc.freeze()  # what was collected is nobody's garbage
        shares = {NAMES[0]: itertools.chain([on_slurm], dealt)} | dict.fromkeys(NAMES[1:], dealt)
        try:
            for name, chunks in shares.items():
                if self._forks(name, session.config):
                    _run(session, itertools.chain.from_iterable(chunks))
                    return True
            self._wait()
            session.testsfailed += sum(code != 0 for code in self.codes.values())
        finally:  # of whoever is told to end, those that it started are, too
            for child in self._running:
                os.kill(child, signal.SIGTERM)
            self._wait()
        _run(session, timed)
        return True

    def _forks(self, name: str, config: pytest.Config) -> bool:
        """Whether this is the new process. It ends with the one that started it."""
        output = tempfile.TemporaryFile("w+", buffering=1, encoding="utf-8")  # noqa: SIM115 - open as long as the process runs
        parent, child = os.getpid(), os.fork()
        if child:
            self._running[child] = name
            self._outputs.append(output)
            return False
        die_with_parent(str(parent), signal.SIGTERM)
        self.name, self._running = name, {}
        for other in (*self._outputs, *([output] if name == NAMES[0] else ())):
            other.close()
        self._outputs.clear()
        if name != NAMES[0]:
            config.get_terminal_writer()._file = output
        return True

    def _wait(self) -> None:
        """Until all have ended; then what they wrote is shown."""
        while self._running:
            child, status = os.wait()
            if name := self._running.pop(child, None):
                self.codes[name] = os.waitstatus_to_exitcode(status)
        for output in self._outputs:
            with output:
                output.seek(0)
                print(output.read(), end="", flush=True)
        self._outputs.clear()


def _is(item: pytest.Item, mark: str) -> bool:
    return item.get_closest_marker(mark) is not None


def _chunks(items: Iterable[pytest.Item]) -> list[Chunk]:
    """The longest first: controllers, then modules by how many of their tests are dear."""
    found: dict[object, list[pytest.Item]] = {}
    for item in items:
        found.setdefault("controllers" if _is(item, "controllers") else item.path, []).append(item)
    dear = {key: sum(_is(item, "dear") for item in chunk) for key, chunk in found.items()}
    return [found[key] for key in sorted(found, key=lambda key: (key != "controllers", -dear[key]))]


def _dealt(chunks: Sequence[Chunk]) -> Iterator[Chunk]:
    """Each of them once, in whichever of the processes that are forked from now on wants the next one first."""
    reads, writes = os.pipe()
    os.write(writes, b"".join(number.to_bytes(NUMBER_BYTES, "little") for number in range(len(chunks))))
    os.close(writes)
    numbers = iter(lambda: os.read(reads, NUMBER_BYTES), b"")
    return (chunks[int.from_bytes(number, "little")] for number in numbers)


def _run(session: pytest.Session, items: Iterable[pytest.Item]) -> None:
    """As pytest's own loop: fixtures stay up for the next test."""
    following = itertools.chain(items, [None])
    item = next(following)
    while item is not None:
        after = next(following)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.shouldstop or session.shouldfail:
            raise session.Interrupted(str(session.shouldstop or session.shouldfail))
        item = after


def main() -> int:
    """0 where every process ended with 0."""
    forked = Forked()
    with ending_signals_raise():
        code = int(pytest.main([*(QUICK if sys.argv[1:] == ["--quick"] else ALL)], plugins=[forked]))
    if forked.name is None:
        print("== exit codes of the tests: " + ", ".join(f"{code} {name}" for name, code in forked.codes.items()))
    return code


if __name__ == "__main__":
    sys.exit(main())
