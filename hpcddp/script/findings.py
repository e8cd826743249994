"""What `hpcddp lint` finds in a script; and shellcheck's part of it, where that is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from hpcddp.core.errors import HpcddpError
from hpcddp.script.job_text import JobText

TIMEOUT_S = 30
"""It takes 0.2 s for a script."""

NOT_ERRORS = "SC1017,SC2068,SC2148"
"""CR LF and a missing first line, which lint_header.py finds; and `$@` without quotes, which right scripts have."""


class Finding(NamedTuple):
    """What a rule found in a line: what is wrong, why, and what to write."""

    line: int
    rule: str
    text: str


def has_shellcheck() -> bool:
    """Whether it is on PATH."""
    return shutil.which("shellcheck") is not None


def run_shellcheck(script: JobText) -> Iterator[Finding]:
    """Its errors, not its advice, which right scripts do not follow; nothing where it is not installed."""
    if not has_shellcheck() or not script.commands:
        return
    command = ["shellcheck", "--format=json1", "--shell=bash", "--severity=error", f"--exclude={NOT_ERRORS}", "-"]
    text = "\n".join(script.lines)
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        comments = json.loads(done.stdout)["comments"]
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        raise HpcddpError(f"shellcheck did not answer as it does: {error}; take it off PATH to do without it") from error
    for comment in comments:
        yield Finding(comment["line"], f"SC{comment['code']}", comment["message"])
