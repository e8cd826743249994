"""The folder of a twin: its configuration, its logs, its device files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hpcddp.core.errors import UsageError
from tests.twin import config
from tests.twin.job_submit import job_submit_lua
from tests.twin.shape import Shape

FOLDERS = ("pid", "log", "state", "spool", "dev")

SOCKET_PATH_MAX = 107
"""Bytes that Linux gives the path of a Unix socket."""

NULL_DEVICE = os.makedev(1, 3)
"""Slurm sets CUDA_VISIBLE_DEVICES for device files only and never opens them: the null device does."""


def check_folder(shape: Shape) -> None:
    """UsageError unless a twin can live in its folder."""
    folder = shape.folder
    if any(character.isspace() for character in str(folder)):
        raise UsageError(f"{folder}: Slurm's configuration takes no path with a space: name another folder for the twin")
    longest = max(len(str(_step_socket(folder, node.name))) for node in shape.nodes)
    if longest > SOCKET_PATH_MAX:
        raise UsageError(f"{folder} is {longest - SOCKET_PATH_MAX} characters too long for a twin (sockets in it): name another")
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty: name another folder for the twin")


def _step_socket(folder: Path, node: str) -> Path:
    """The longest socket there will be: slurmstepd's, of the batch step of a job with five digits."""
    return folder / "spool" / node / f"{node}_10000.4294967294"


def write_folder(shape: Shape) -> None:
    """Everything the daemons read and write, before they start."""
    folder = shape.folder
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for node in () if shape.site.cloud else shape.nodes:
        (folder / "spool" / node.name).mkdir()
    for index in range(max(node.kind.gpus or 0 for node in shape.nodes)):
        os.mknod(folder / "dev" / f"gpu{index}", stat.S_IFCHR | 0o600, NULL_DEVICE)
    (folder / "slurm.conf").write_text(config.slurm_conf(shape), encoding="utf-8")
    if plugin := job_submit_lua(shape.profile):
        (folder / "job_submit.lua").write_text(plugin, encoding="utf-8")
    (folder / "gres.conf").write_text(config.gres_conf(shape), encoding="utf-8")
    own = Path("/etc/hosts").read_text(encoding="utf-8")
    (folder / "hosts").write_text(own + "".join(f"\n127.0.0.1 {node.name}" for node in shape.nodes) + "\n", encoding="utf-8")
    (folder / "slurmdbd.conf").touch(mode=0o600)
    (folder / "slurmdbd.conf").write_text(config.slurmdbd_conf(shape), encoding="utf-8")
