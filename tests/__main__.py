"""All tests, as `make test` runs them: `python -m tests`.

Four sessions of pytest share the processors: the tests on a Slurm, which mostly wait for it, those on controllers without nodes,
those of the analysis and of the studies' pages, and the rest, which is shown as it goes; what pytest says of the others follows.
Tests in which workers time
themselves (marked `timed`) come last and by themselves: beside others they would time these as well.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO

from tests.twin.signals import Ended, ending_signals_raise

UNTIMED = ("-m", "not slurm and not soak and not timed")
ANALYSIS = ("tests/analysis", "tests/commands/test_study_commands.py")
REST = (*UNTIMED, *(f"--ignore={path}" for path in ANALYSIS))
BESIDE = {
    "on a Slurm": ("-m", "slurm and not soak and not controllers"),
    "on controllers": ("-m", "controllers and not soak"),
    "of analysis and studies": (*UNTIMED, *ANALYSIS),
}
TIMED = ("-m", "timed and not slurm and not soak")

Session = subprocess.Popen[bytes]


def main() -> int:
    """0 where every session of pytest ended with 0."""
    with ending_signals_raise():
        codes = {"timed": 0, **_untimed()}
        (codes["timed"],) = _ended(_begin(TIMED))
    print("== exit codes of the tests: " + ", ".join(f"{code} {name}" for name, code in codes.items()))
    return int(any(codes.values()))


def _untimed() -> dict[str, int]:
    """Exit codes by session."""
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in BESIDE]
        stack.callback(_show, outputs)
        beside = [_begin(chosen, output) for chosen, output in zip(BESIDE.values(), outputs, strict=True)]
        return dict(zip(("of the rest", *BESIDE), _ended(_begin(REST), *beside), strict=True))


def _show(outputs: Sequence[IO[bytes]]) -> None:
    for output in outputs:
        output.seek(0)
        shutil.copyfileobj(output, sys.stdout.buffer)
    sys.stdout.flush()


def _begin(chosen: tuple[str, ...], output: IO[bytes] | None = None) -> Session:
    return subprocess.Popen([sys.executable, "-m", "pytest", *chosen], stdout=output, stderr=output and subprocess.STDOUT)


def _ended(*sessions: Session) -> list[int]:
    """Their exit codes. Where this process is told to end they are, too: by Ctrl-C of the terminal, or from here."""
    try:
        return [session.wait() for session in sessions]
    except KeyboardInterrupt as ending:
        for session in sessions:
            if isinstance(ending, Ended):
                session.terminate()
            session.wait()
        raise


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
