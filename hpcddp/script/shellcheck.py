"""shellcheck's own findings in a script, where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator

from hpcddp.core.errors import HpcddpError
from hpcddp.script.findings import Finding

TIMEOUT_S = 30
"""It takes 0.2 s for a script."""


def has_shellcheck() -> bool:
    """Whether it is on PATH."""
    return shutil.which("shellcheck") is not None


def run_shellcheck(text: str) -> Iterator[Finding]:
    """What it says of the script; nothing where it is not installed."""
    if not has_shellcheck():
        return
    command = ["shellcheck", "--format=json1", "--shell=bash", "-"]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        comments = json.loads(done.stdout)["comments"]
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        raise HpcddpError(f"shellcheck did not answer as it does: {error}; take it off PATH to do without it") from error
    for comment in comments:
        yield Finding(line=comment["line"], rule=f"SC{comment['code']}", text=comment["message"])
