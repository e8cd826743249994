"""What `hpcddp clusters list` and `clusters show` print."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcddp.cluster.profile import ClusterProfile, Fact, is_fact
from hpcddp.cluster.profile_file import load_profile, merged_document, read_profile
from hpcddp.cluster.profile_names import FOLDER, own_folder, own_profiles, profile_names, typed_path
from hpcddp.cluster.yaml_text import Noted, comment, flow, yaml_text
from hpcddp.core.errors import UsageError
from hpcddp.core.schema import decode, encode
from hpcddp.core.text import table

GRADES = {
    "A": "the site's or vendor's own documentation",
    "B": "several independent users agree",
    "C": "one user, or an inference",
    "?": "not verified",
}

NO_COLUMNS = ("status", "extends", "file")
"""What a row has besides what the table shows in a column."""


def list_clusters() -> list[dict[str, object]]:
    """One row per profile that can be read, the user's own ones last, with their files and what they extend; None is unknown."""
    shipped = (read_profile(FOLDER / f"{name}.yaml") for name in profile_names())
    return [_summary(profile) for profile in (*shipped, *_own_profiles()[0])]


def unreadable_profiles() -> list[str]:
    """What is wrong with those of the user's own profiles that cannot be read."""
    return _own_profiles()[1]


def _own_profiles() -> tuple[list[ClusterProfile], list[str]]:
    """The user's own profiles, and the complaints about the others of them."""
    profiles, problems = [], []
    for name in own_profiles():
        try:
            profiles.append(load_profile(name))
        except UsageError as error:
            problems.append(str(error))
    return profiles, problems


def clusters_table(rows: Sequence[Mapping[str, object]]) -> str:
    """The rows of list_clusters for 80 columns; what is not active says so behind its title; below them those of the user."""
    if not rows:
        return "no profiles in clusters/"
    header = tuple(name for name in rows[0] if name not in NO_COLUMNS)
    shown = [{**row, "title": row["title"] if row["status"] == "active" else f"{row['title']} ({row['status']})"} for row in rows]
    text = table(header, [[row[name] for name in header] for row in shown], left=[name for name in header if name != "nodes"])
    own = [f"{row['name']} (extends {row['extends']})" if row["extends"] else str(row["name"]) for row in rows if row["file"]]
    return f"{text}\n\nYours, in {typed_path(own_folder())}: {', '.join(own)}" if own else text


def cluster_plain(profile: ClusterProfile) -> dict[str, Any]:
    """The profile as plain JSON-able values; `facts` says by dotted path where each came from."""
    plain: dict[str, Any] = encode(profile)
    return plain


def show_cluster(profile: ClusterProfile) -> str:
    """The profile as YAML, what it extends merged into it; grades, sources and notes are comments."""
    file = Path(profile.file) if profile.file else FOLDER / f"{profile.name}.yaml"
    head = [f"# {typed_path(file)}, merged into {profile.extends}"] if profile.extends else []
    grades = "; ".join(f"{grade} {words}" for grade, words in GRADES.items())
    head += comment(f"Comments give the grade and source of each value: {grades}.")
    document: Any = _noted(merged_document(file)[0])
    return "\n".join([*head, yaml_text(document)])


def _noted(data: object) -> object:
    """The document with a comment for each fact."""
    if is_fact(data):
        fact = decode(Fact, data)
        return Noted(fact.value, _words(fact))
    if isinstance(data, dict):
        return {key: _noted(item) for key, item in data.items()}
    return [_noted(item) for item in data] if isinstance(data, list) else data


def _words(fact: Fact) -> str:
    """`A hardware (the site's own pages disagree); but 480: A jobs`"""
    note = f" ({' '.join(fact.note.split())})" if fact.note else ""
    others = [f"but {flow(other.value)}: {_words(other)}" for other in fact.conflicts]
    return "; ".join([f"{fact.grade} {fact.source}{note}", *others])


def _summary(profile: ClusterProfile) -> dict[str, object]:
    counts = [node.count for node in profile.node_types.values()]
    known = [count for count in counts if count is not None]
    return {
        "name": profile.name,
        "status": profile.status,
        "nodes": sum(known) if len(known) == len(counts) and known else None,
        "gpus per node": _gpus_per_node(profile),
        "title": profile.title,
        "extends": profile.extends,
        "file": profile.file,
    }


def _gpus_per_node(profile: ClusterProfile) -> str | None:
    """`4-8 V100/A40`: how many a node has, and their models without memory and form, over all node types."""
    nodes = [node for node in profile.node_types.values() if node.gpu]
    counts = sorted({node.gpus for node in nodes if node.gpus})
    models = [re.sub(r"^(NVIDIA|Tesla|AMD Instinct) |[- ](SXM|PCI|\d+GB).*", "", str(node.gpu)) for node in nodes]
    number = "-".join(map(str, dict.fromkeys([counts[0], counts[-1]]))) if counts else "?"
    return f"{number} {'/'.join(dict.fromkeys(models))}" if nodes else None
