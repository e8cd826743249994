"""Caches of compiled code, on the node's own disk: a parallel file system has no use for thousands of small files, and its locks
fail the data bases that MIOpen writes ("disk I/O error"). Standard library only: it comes before torch.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import MutableMapping
from pathlib import Path

from hpcddp.worker.ranks import Rank

VARIABLES = {
    "MIOPEN_USER_DB_PATH": "miopen",
    "MIOPEN_CUSTOM_CACHE_DIR": "miopen",
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "torch-extensions",
}
"""Where each library says that its cache may lie, and the folder there. torch.compile's own is in the node's temporary folder
already.
"""


def place_caches(rank: Rank, env: MutableMapping[str, str] = os.environ) -> None:
    """Every cache that neither user nor site has placed goes into a folder of this attempt, if that is the user's own: what lies
    there is run.
    """
    folder = cache_folder(rank, env)
    if _is_made(folder):
        for name, own in VARIABLES.items():
            env.setdefault(name, str(folder / own))


def remove_caches(rank: Rank, env: MutableMapping[str, str] = os.environ) -> None:
    """When all of the node have trained: in a temporary folder that is not the job's own they would stay."""
    shutil.rmtree(cache_folder(rank, env), ignore_errors=True)


def cache_folder(rank: Rank, env: MutableMapping[str, str] = os.environ) -> Path:
    """The same for all ranks of a node; other users and other jobs have theirs."""
    places = [env[name] for name in ("SLURM_TMPDIR", "TMPDIR") if name in env]
    place = next((place for place in places if os.path.isdir(place) and os.access(place, os.W_OK)), "/tmp")
    return Path(place) / f"hpcddp-{os.getuid()}-{rank.job}-{rank.restart}"


def _is_made(folder: Path) -> bool:
    """Whether it is there, made by this user for nobody else: by this rank, or by another one of the node."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
