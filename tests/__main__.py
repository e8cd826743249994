"""All tests, as `make test` runs them: `python -m tests`; with --quick those of `make quick`.

Four sessions of pytest share the processors: the tests on a Slurm, which mostly wait for it, those on controllers without nodes,
those of the analysis and of the studies' pages, and the rest, which is shown as it goes; what pytest says of the others follows.
Each collects the files that it may find its tests in. Tests in which workers time themselves (marked `timed`) come last and by
themselves: beside others they would time these as well. The quick tests are two sessions, none of which needs a Slurm or root.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.twin.daemons import Ended, ending_signals_raise

MOST_CPU_S = 2
"""Of a test that is not marked to take more: four times what an unmarked one takes on the machine where it is written. Held by
`make quick`: beside a Slurm and ranks that train everything takes longer."""

Session = subprocess.Popen[bytes]


def files_with(pattern: str) -> tuple[str, ...]:
    """Files of tests in which that stands."""
    return tuple(sorted(str(file) for file in Path("tests").rglob("test_*.py") if re.search(pattern, file.read_text("utf-8"))))


UNTIMED = ("-m", "not slurm and not soak and not timed")
ANALYSIS = ("tests/analysis", "tests/commands/test_study_commands.py")
TWIN = "tests/twin"
REST = (*UNTIMED, *(f"--ignore={path}" for path in (*ANALYSIS, TWIN)))
BESIDE = {
    "on a Slurm": ("-m", "slurm and not soak and not controllers", *files_with(r": Twins?\b|mark\.slurm")),
    "on controllers": ("-m", "(controllers or not slurm) and not soak and not timed", TWIN),
    "of analysis and studies": (*UNTIMED, *ANALYSIS),
}
TIMED = ("-m", "timed and not slurm and not soak", *files_with(r": Link\b|mark\.timed"))

QUICK = (f"--most-cpu={MOST_CPU_S}", "-m", "not slurm and not soak and not timed and not gpu and (not dear or quick)")
QUICK_HALF = ("tests/analysis", "tests/commands", "tests/data")
"""By the time they take."""


def main() -> int:
    """0 where every session of pytest ended with 0."""
    with ending_signals_raise():
        if sys.argv[1:] == ["--quick"]:
            others = [f"--ignore={folder}" for folder in QUICK_HALF]
            codes = _concurrent((*QUICK, *others), {"of analysis, commands and data": (*QUICK, *QUICK_HALF)})
        else:
            codes = _concurrent(REST, BESIDE)
            (codes["timed"],) = _ended(_begin(TIMED))
    print("== exit codes of the tests: " + ", ".join(f"{code} {name}" for name, code in codes.items()))
    return int(any(codes.values()))


def _concurrent(shown: tuple[str, ...], beside: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Exit codes by session."""
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in beside]
        stack.callback(_show, outputs)
        others = [_begin(chosen, output) for chosen, output in zip(beside.values(), outputs, strict=True)]
        return dict(zip(("of the rest", *beside), _ended(_begin(shown), *others), strict=True))


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
