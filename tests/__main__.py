"""All tests, as `make test` runs them: `python -m tests`.

Those on a Slurm mostly wait for it: they run beside the others, and what pytest says of them is shown when both are over.
Those in which workers time themselves come last, alone: beside others they would time these as well.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from typing import IO

from tests.twin.signals import Ended, ending_signals_raise

EXCLUSIVE = ("tests/net", "tests/worker")
ON_SLURM = ("-m", "slurm and not soak")
OTHERS = ("-m", "not slurm and not soak", *(f"--ignore={path}" for path in EXCLUSIVE))

Session = subprocess.Popen[bytes]


def main() -> int:
    """0 where every session of pytest ended with 0."""
    with ending_signals_raise(), tempfile.TemporaryFile() as said:
        try:
            codes = _ended(_begin(OTHERS), _begin(ON_SLURM, said))
        finally:
            said.seek(0)
            shutil.copyfileobj(said, sys.stdout.buffer)
            sys.stdout.flush()
        codes += _ended(_begin(EXCLUSIVE))
    print(f"== exit codes: {codes[0]} of the tests without a Slurm, {codes[1]} on one, {codes[2]} alone")
    return int(any(codes))


def _begin(chosen: tuple[str, ...], said: IO[bytes] | None = None) -> Session:
    return subprocess.Popen([sys.executable, "-m", "pytest", *chosen], stdout=said, stderr=said and subprocess.STDOUT)


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
