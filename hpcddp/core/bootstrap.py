"""Starts a job's process from the snapshot this file lies in: `HASH/bootstrap.py [--trust GIDS] [--module NAME] ARGUMENTS`.

The snapshot goes first on sys.path, whatever PYTHONPATH, PYTHONSAFEPATH, module files, start-up hooks or the working
directory (often a live checkout) say, and stays unchanged: no bytecode is written into it. Without --module, submitit's
own job side runs with the arguments. Standard library only, Python 3.10; a copy lies at the top of every snapshot.

Nothing runs that another user put there. Every file is compared with what is to run once, at submission (snapshot.py),
in folders that nobody else may write. Here, before anything is imported or unpickled, it is only checked that they still are the
user's: five or six folders, which the kernel has at hand since it opened this file. To read every file in every rank would cost
a parallel file system more than the imports do. Who may rename a folder above the study can exchange this file, too: that is
no check's business but the permissions' of that folder.
"""

from __future__ import annotations

import grp
import os
import pwd
import runpy
import shlex
import signal
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent

PARENT_VARIABLE = "HPCDDP_PARENT_PID"
"""Set by a launcher whose processes must not outlive it."""

PR_SET_PDEATHSIG = 1
"""linux/prctl.h"""


def main() -> None:
    """Prepares this process, then runs the module that the arguments name."""
    die_with_parent(os.environ.get(PARENT_VARIABLE), signal.SIGKILL)
    module, arguments, trusted = "submitit.core._submit", sys.argv[1:], set[int]()
    if arguments[:1] == ["--trust"]:
        trusted, arguments = set(map(int, arguments[1].split(","))), arguments[2:]
    own = arguments[2:3] if arguments[:1] == ["--module"] else arguments[:1]
    if found := list(ownership_problems(*job_folders(Path(__file__), Path(*own)), trusted)):
        sys.exit("\n".join(f"hpcddp: {text}" for text in found))
    use_snapshot(HERE)
    from hpcddp.core.stop_signal import block_stop_signal

    block_stop_signal()
    if arguments[:1] == ["--module"]:
        module, arguments = arguments[1], arguments[2:]
    else:
        from hpcddp.core.launcher import become_submitit_task

        become_submitit_task(Path(arguments[0]))
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def job_folders(bootstrap: Path, own: Path) -> tuple[Path, list[Path]]:
    """The study, and where in it code or pickles come from: `.code`, the snapshot, and what is on the way to `own`."""
    snapshot, own = Path(os.path.abspath(bootstrap)).parent, Path(os.path.abspath(own))
    study = snapshot.parent.parent
    on_the_way = [folder for folder in (own, *own.parents) if study in folder.parents]
    return study, [snapshot.parent, snapshot, *reversed(on_the_way)]


def ownership_problems(study: Path, folders: Collection[Path], trusted: Collection[int]) -> Iterator[str]:
    """A sentence, with what to do, for each kind of problem; it names the folders that somebody else may have filled that way."""
    found: dict[tuple[str, str], list[str]] = {}
    for folder in (study, *folders):
        if problem := ownership_problem(folder, trusted, is_study=folder == study):
            found.setdefault(problem, []).append(str(folder))
    for (what, advice), paths in found.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield f"{paths[0]}{more} {what} would run as you: {advice.replace('PATHS', ' '.join(map(shlex.quote, paths)))}"


def ownership_problem(path: Path, trusted: Collection[int], is_study: bool = False) -> tuple[str, str] | None:
    """Why somebody else may change `path`, and the command that ends it: it belongs to another user, others may write there (the
    groups `trusted` may), or it is a link, which leads anywhere; a study may be a link of the user's own.
    """
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode) and not (is_study and found.st_uid in (0, os.getuid())):
        return "is a link, and code in its target", "rm PATHS"
    found = os.stat(path)
    if found.st_uid not in (0, os.getuid()) and found.st_gid not in trusted:
        advice = "give another folder with --runs" if is_study else "rm -r PATHS"
        return f"belongs to {name_of(found.st_uid, pwd.getpwuid)}, whose code", advice
    if found.st_mode & stat.S_IWOTH:
        return "may be written by everybody, whose code", "chmod o-w PATHS"
    if group := writing_group(found, trusted):
        advice = f"chmod g-w PATHS, or put `trusted_groups: [{group}]` into your settings"
        return f"may be written by group {group}, whose code", advice
    return None


def writing_group(found: os.stat_result, trusted: Collection[int]) -> str | None:
    """The group that may write there, unless it is one of `trusted` or the user's alone, which bears the user's name."""
    group = name_of(found.st_gid, grp.getgrgid)
    own = found.st_gid in trusted or group == name_of(os.getuid(), pwd.getpwuid)
    return group if found.st_mode & stat.S_IWGRP and not own else None


def name_of(number: int, lookup: Callable[[int], Sequence[object]]) -> str:
    """The name of a user or a group; the number where this machine has no name for it."""
    try:
        return str(lookup(number)[0])
    except KeyError:
        return str(number)


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
