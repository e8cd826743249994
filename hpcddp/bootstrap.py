"""Starts a job's process from the snapshot this file lies in: `python -u HASH/bootstrap.py [--module NAME] ARGUMENTS`.

The snapshot goes first on sys.path, whatever PYTHONPATH, PYTHONSAFEPATH, module files, start-up hooks or the working
directory (often a live checkout) say, and stays unchanged: no bytecode is written into it. Without --module, submitit's
own job side runs with the arguments. Standard library only, Python 3.10; a copy lies at the top of every snapshot.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

PARENT_VARIABLE = "HPCDDP_PARENT_PID"
"""Set by a launcher whose processes must not outlive it."""

PR_SET_PDEATHSIG = 1
"""linux/prctl.h"""


def main() -> None:
    """Prepares this process, then becomes the module asked for."""
    die_with_parent(os.environ.get(PARENT_VARIABLE), signal.SIGKILL)
    use_snapshot(HERE)
    from hpcddp.worker.stop_signal import hold_back

    hold_back()
    module, arguments = "submitit.core._submit", sys.argv[1:]
    if arguments[:1] == ["--module"]:
        module, arguments = arguments[1], arguments[2:]
    else:
        from hpcddp.launcher import take_place

        take_place(Path(arguments[0]))
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def use_snapshot(folder: Path) -> None:
    """Makes `folder` the first place to import from, and forgets what was imported of the same names from elsewhere."""
    sys.dont_write_bytecode = True
    text = str(folder)
    sys.path[:] = [text, *(entry for entry in sys.path if entry not in ("", text))]
    ours = {entry.name.removesuffix(".py") for entry in folder.iterdir()}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name.partition(".")[0] in ours and name != "__main__" and not file.startswith(text + os.sep):
            del sys.modules[name]


def die_with_parent(parent: str | None, with_signal: int) -> None:
    """This process gets `with_signal` when its parent ends, however that happens (Linux only; elsewhere nothing is done).

    `parent` is the id of the process that started this one, maybe through a wrapper; it may have ended already.
    """
    if parent is None or not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(with_signal))
    try:
        os.kill(int(parent), 0)
    except ProcessLookupError:
        sys.exit(f"hpcddp: the process that started this one ({parent}) has ended")


if __name__ == "__main__":
    main()
