"""Where what is made of a study goes: beside it, or into the user's cache where that cannot be written."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hpcddp.runroot import Study


def report_folder(study: Study) -> Path:
    """`report/` in the study; of someone else's, or one on a file system mounted read-only, a folder of the user's cache."""
    beside = study.folder / "report"
    return beside if _writable(beside) else cache_folder("reports", study.folder)


def kept_folder(study: Study) -> Path:
    """`.analysis/` in the study; where that cannot be written, a folder of the user's cache."""
    beside = study.folder / ".analysis"
    return beside if _writable(beside) else cache_folder("analysis", study.folder)


def cache_folder(kind: str, of: Path, env: Mapping[str, str] = os.environ) -> Path:
    """`~/.cache/hpcddp/KIND/NAME-HASH` (under XDG_CACHE_HOME where that is set), always the same for the same path."""
    base = env.get("XDG_CACHE_HOME", "")
    place = of.resolve()
    digest = hashlib.sha256(os.fsencode(place)).hexdigest()[:8]
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "hpcddp" / kind / f"{place.name}-{digest}"


def _writable(folder: Path) -> bool:
    """Tried, because permissions do not tell: root may write anywhere, but not on a mount that is read-only."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
