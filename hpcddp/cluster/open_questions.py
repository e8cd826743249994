"""What nobody documents of a cluster, and how to find it: said on a user's first `hpcddp render` that it concerns.

What was said is kept in `~/.local/state/hpcddp/open-questions/` (under XDG_STATE_HOME where that is set); where that cannot be
written, it is said every time.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from hpcddp.cluster.profile import ClusterProfile, Fact

ANSWERED_OTHERWISE = ("latency_us", "max_array_size")
"""`hpcddp bench comm` measures the one, Slurm is asked for the other."""

WIDTH = 96


def open_questions(profile: ClusterProfile, node_types: Collection[str | None]) -> dict[str, Fact]:
    """By dotted path, the facts of the cluster and of these nodes that nobody verified and a remark says how to find."""
    return {
        path: fact
        for path, fact in profile.facts.items()
        if fact.grade == "?" and fact.note and not path.endswith(ANSWERED_OTHERWISE) and _concerns(path, node_types)
    }


def questions_text(profile: ClusterProfile, questions: Mapping[str, Fact]) -> str:
    """The questions with where to look, those with the same answer together, for a terminal."""
    import textwrap

    names: dict[str, list[str]] = {}
    for path, fact in questions.items():
        names.setdefault(str(fact.note), []).append(path)
    lines = [f"not documented of {profile.name}; ask once, and write it down in a profile that extends this one:"]
    for note, of in names.items():
        lines += textwrap.wrap(f"{', '.join(of)}: {note}", WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join([*lines, f"  (said once; `{profile.show_command}` has it too)"])


def is_news(profile: ClusterProfile, questions: Mapping[str, Fact]) -> bool:
    """Whether this user has not been given one of these questions on this profile before; from now on they have."""
    lines = {" ".join(f"{path}: {fact.note}".split()) for path, fact in questions.items()}
    file = _state_folder() / re.sub(r"[^\w.-]", "_", profile.name)
    try:
        known = set(file.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        known = set()
    if lines <= known:
        return False
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(sorted(known | lines)), encoding="utf-8")
    return True


def _concerns(path: str, node_types: Collection[str | None]) -> bool:
    first, _, rest = path.partition(".")
    return first != "node_types" or rest.partition(".")[0] in node_types


def _state_folder() -> Path:
    """A relative XDG_STATE_HOME is ignored, as its standard says."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "hpcddp" / "open-questions"
