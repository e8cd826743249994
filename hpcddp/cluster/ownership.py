"""Who may change what jobs run as this user: the user, root, and members of the settings' `trusted_groups`; nobody else.

Checked of a study's own folders (`.code`, `.jobs`, the lock) whenever something changes a study, of a snapshot's content at
each submission (snapshot.py), and of the folders again where a job starts (bootstrap.py). A folder above the study that a
group may write is common, a project's, and left to the user; one that everybody may write is not.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from hpcddp.cluster.settings import Settings, config_file, load_settings
from hpcddp.core.bootstrap import name_of, ownership_problems, writing_group
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.run_root import Study


def trusted_gids(settings: Settings | None = None) -> tuple[int, ...]:
    """The user's trusted groups by number, sorted; UsageError for one that this machine does not know."""
    named = (load_settings()[0] if settings is None else settings).trusted_groups
    try:
        return tuple(sorted(grp.getgrnam(name).gr_gid for name in named))
    except KeyError as error:
        raise UsageError(f"{config_file()}: trusted_groups: {error.args[0]}; `id -Gn` lists yours") from error


def check_ownership(study: Study, trusted: Collection[int]) -> None:
    """HpcddpError names every folder of the study that somebody else may have filled with code, and what to do."""
    check_links(study)
    folders = [folder for folder in (study.code, study.jobs, study.submit_lock) if os.path.lexists(folder)]
    found = list(ownership_problems(study.folder, folders, trusted)) if os.path.exists(study.folder) else []
    if found := [*found, *_open_to_everybody(study.folder.resolve())]:
        raise HpcddpError("\n".join(found))


def check_links(study: Study) -> None:
    """HpcddpError where something of the study's own is a link: what it leads to would be written."""
    for path in (study.code, study.jobs, study.submit_lock, study.submissions_file):
        if path.is_symlink():
            raise HpcddpError(f"{path} is a link, so its target would be written. Remove the link.")


def owner_of(folder: Path) -> str:
    """By name where there is one."""
    return name_of(folder.stat().st_uid, pwd.getpwuid)


def _open_to_everybody(folder: Path) -> Iterator[str]:
    """A sentence on each folder above in which everybody may put another in its place; in one like /tmp they may not."""
    for parent in folder.parents:
        with contextlib.suppress(OSError):  # whoever writes there says what is wrong
            mode = parent.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                yield f"{parent} may be written by everybody, whose code would run as you: chmod o-w {parent}, or use --runs"


def group_above(study: Study, trusted: Collection[int]) -> str | None:
    """A sentence on the nearest folder above in which a group may put another study in the place of this one. Projects have such
    folders, so it is a remark: in them the user's own folder takes the way out, or the settings the group in.
    """
    for parent in study.folder.resolve().parents:
        with contextlib.suppress(OSError):
            found = parent.stat()
            group = None if found.st_mode & stat.S_ISVTX else writing_group(found, trusted)
            if group:
                return (
                    f"{parent} may be written by group {group}, who could replace this study and its code. "
                    f"Run chmod g-w {parent}, use --runs, or put `trusted_groups: [{group}]` into your settings."
                )
    return None
