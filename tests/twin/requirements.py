"""What a twin needs of this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sbatch", "sacctmgr")
MODULES_INIT = Path("/etc/profile.d/modules.sh")
PACKAGES = Path(__file__).parent / "packages.txt"


def missing() -> str | None:
    """Why no twin can run here, or None."""
    if os.geteuid() != 0:
        return "a twin needs root: slurmd starts jobs as their users"
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    absent += [] if MODULES_INIT.exists() else [str(MODULES_INIT)]
    return f"not installed: {', '.join(absent)} (apt-get install what {PACKAGES} lists)" if absent else None
