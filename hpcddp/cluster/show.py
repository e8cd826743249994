"""What `hpcddp clusters list` and `clusters show` say: the profiles' values, then how far each is to be trusted.

The words are the profile's own keys, so that what is read here can be found, and changed, in the YAML file.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpcddp.cluster.paths import typed_path
from hpcddp.cluster.profile import ClusterProfile, Fact
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import own_folder, own_profiles, profile_names
from hpcddp.cluster.slurm_rules import Qos
from hpcddp.core.errors import UsageError
from hpcddp.core.schema import encode
from hpcddp.core.text import table

WIDTH = 100

GRADES = {
    "A": "the site's or vendor's own documentation",
    "B": "several independent users agree",
    "C": "one user, or an inference",
    "?": "not verified",
}

NO_COLUMNS = ("status", "extends", "file")
"""What a row has besides what the table shows in a column."""

Rows = list[tuple[str, str]]


def list_clusters() -> list[dict[str, object]]:
    """One row per profile that can be read, the user's own ones last: name, status, nodes, GPUs per node, title; None is unknown.
    A row also has the file of one of the user's own, and what that extends.
    """
    return [_summary(profile) for profile in (*map(load_profile, profile_names()), *_own_profiles()[0])]


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
    """The rows of list_clusters as a table for 80 columns; what is not active says so behind its title. Below it those of
    the user.
    """
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
    """Everything the profile says, within 100 columns: values first, then notes and conflicts, sources and grades."""
    sections = (_head, _node_types, _slurm, _qos, _fabric, _environment, _workload, _notes, _provenance, _legend)
    return "\n\n".join(text for section in sections if (text := section(profile)))


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


def _head(profile: ClusterProfile) -> str:
    status = " (retired: no jobs run there any more)" if profile.status == "retired" else ""
    lines = [f"{profile.name}: {profile.title}{status}"]
    if profile.file is not None and profile.extends is not None:
        lines.append(f"  {typed_path(profile.file)} extends {profile.extends}")
    return "\n".join([*lines, *_wrapped(profile.note or "", "  ")])


def _node_types(profile: ClusterProfile) -> str:
    """A table, a column per type; types one below the other where that is too wide or there is but one."""
    columns = {name: dict(_node_rows(profile, name)) for name in profile.node_types}
    titles = [f"{name} (default)" if name == profile.default_node_type else name for name in columns]
    keys = list(dict.fromkeys(key for rows in columns.values() for key in rows))
    header = ["", *titles]
    text = table(header, [[key, *(rows.get(key) for rows in columns.values())] for key in keys], left=header)
    if len(columns) > 1 and all(len(line) <= WIDTH for line in text.splitlines()):
        return f"Node types\n{text}"
    return "\n\n".join(
        _pairs(f"Node type {title}", list(rows.items())) for title, rows in zip(titles, columns.values(), strict=True) if rows
    )


def _node_rows(profile: ClusterProfile, name: str) -> Rows:
    """The facts of a node type and, where hardware threads make the two differ, the CPUs that Slurm counts."""
    node = profile.node_types[name]
    rows = _values(profile, f"node_types.{name}", node)
    if node.smt == 1 or node.logical_cpus is None:
        return rows
    after = [key for key, _ in rows].index("smt") + 1
    return [*rows[:after], ("CPUs in Slurm", str(node.logical_cpus)), *rows[after:]]


def _slurm(profile: ClusterProfile) -> str:
    if profile.backend != "slurm":
        return _pairs("No Slurm", [("backend", profile.backend)])
    return _pairs("Slurm", _values(profile, "slurm", profile.slurm, skip=("qos",)))


def _qos(profile: ClusterProfile) -> str:
    """A row per QOS, the limits as columns; what no QOS limits is left out."""
    if profile.backend != "slurm":
        return ""
    rows = [dict(_values(profile, f"slurm.qos.{i}", qos)) for i, qos in enumerate(profile.slurm.qos)]
    keys = [field.name for field in dataclasses.fields(Qos) if field.name != "name" and any(field.name in row for row in rows)]
    cells = [[row.get("name", "none asked for"), *(row.get(key) for key in keys)] for row in rows]
    return f"Limits per QOS\n{table(['qos', *keys], cells, left=['qos'])}" if keys else ""


def _fabric(profile: ClusterProfile) -> str:
    return _pairs("Fabric", _values(profile, "fabric", profile.fabric))


def _environment(profile: ClusterProfile) -> str:
    rows = _values(profile, "compute", profile.compute)
    rows += [(f"env {key}", value) for key, value in profile.env.items()]
    if profile.login_hosts:
        fact = profile.facts.get("login_hosts")
        rows.append(("login_hosts", ", ".join(profile.login_hosts) + (_mark(fact) if fact else "")))
    return _pairs("Environment of the workers", rows)


def _workload(profile: ClusterProfile) -> str:
    workload = profile.default_workload
    if workload is None:
        return ""
    rows = [
        ("model", workload.model),
        ("data", workload.data.name + (f" in {workload.data.root}" if workload.data.root else "")),
        ("batch_per_gpu", str(workload.batch_per_gpu)),
        ("loader_workers_per_rank", str(workload.loader_workers_per_rank)),
    ]
    return _pairs("Default workload", rows)


def _notes(profile: ClusterProfile) -> str:
    """One entry per fact that has something to add: what other sources say instead, and the remark."""
    rows = []
    for path, fact in profile.facts.items():
        claims = [f"{_fact_text(one)} [{one.grade} {one.source}]" for one in (fact, *fact.conflicts)]
        texts = [f"{claims[0]}, but {', '.join(claims[1:])}"] if fact.conflicts else []
        texts += [fact.note] if fact.note else []
        if texts:
            rows.append((" ".join(_placed(profile, path)), "; ".join(texts)))
    return _pairs("Notes, and where sources differ (*)", rows)


def _provenance(profile: ClusterProfile) -> str:
    """Every fact under its grade and source, gathered per part of the profile."""
    gathered: dict[tuple[str, str], list[str]] = {}
    for path, fact in profile.facts.items():
        place, key = _placed(profile, path)
        gathered.setdefault((place, f"{fact.grade} {fact.source}"), []).append(key)
    if not gathered:
        return ""
    first, second = (max(len(pair[i]) for pair in gathered) + 2 for i in (0, 1))
    lines, last = ["Where each value comes from"], None
    for (place, origin), keys in sorted(gathered.items(), key=lambda item: _place_in_file(profile, item[0][0])):
        lead = f"  {place if place != last else '':<{first}}{origin:<{second}}"
        lines += _wrapped(", ".join(keys), " " * len(lead), lead)
        last = place
    return "\n".join(lines)


def _legend(profile: ClusterProfile) -> str:
    if not profile.facts:
        return ""
    used = {source for fact in profile.facts.values() for source in (fact.source, *(o.source for o in fact.conflicts))}
    grades = _pairs("Grades (a value without a mark is graded A, or is a choice of this profile)", list(GRADES.items()))
    return f"{grades}\n\n" + _pairs("Sources", [(key, text) for key, text in profile.sources.items() if key in used])


def _values(profile: ClusterProfile, path: str, record: Any, skip: Sequence[str] = ()) -> Rows:
    """The fields of a record that say something, each with the mark of its fact; defaults are left out unless text."""
    rows, written = [], encode(record)
    for field in dataclasses.fields(record):
        if field.name not in written:
            continue
        value, fact = getattr(record, field.name), profile.facts.get(f"{path}.{field.name}")
        if value is None and isinstance(field.default, bool):
            rows.append((field.name, "unknown" + (_mark(fact) if fact else "")))
        elif fact is not None:
            rows.append((field.name, _fact_text(fact, field.name) + _mark(fact)))
        elif field.name not in skip and (value != field.default or isinstance(value, str)):
            rows.append((field.name, _value_text(value, field.name)))
    return rows


def _fact_text(fact: Fact, key: str = "") -> str:
    """The value in words; nothing is `unknown` where the fact is not verified, and `none` where it is known."""
    if fact.value is None:
        return "unknown" if fact.grade == "?" else "none"
    return _value_text(fact.value, key)


def _mark(fact: Fact) -> str:
    """` [C]` for anything but grade A, `*` where another source says something else."""
    grade = "" if fact.grade == "A" else f" [{fact.grade}]"
    return grade + ("*" if fact.conflicts else "")


def _value_text(value: object, key: str = "") -> str:
    """A value in words; durations in minutes are given in hours or days too."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value))
    if key.endswith("_min") and isinstance(value, int) and value >= 60:
        return f"{value} ({value / 1440:g} d)" if value > 1440 else f"{value} ({value / 60:g} h)"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _placed(profile: ClusterProfile, path: str) -> tuple[str, str]:
    """A dotted path as the part it belongs to and its key: `slurm.qos.1.max_nodes` -> (`qos dev`, `max_nodes`)."""
    *parents, key = path.split(".")
    if parents[:1] == ["node_types"]:
        return parents[1], key
    if parents[:2] == ["slurm", "qos"]:
        return f"qos {profile.slurm.qos[int(parents[2])].name or 'none'}", key
    return " ".join(parents) or profile.name, key


def _place_in_file(profile: ClusterProfile, place: str) -> int:
    """Where a part comes in the file; sorting by it is stable within a part."""
    places = list(dict.fromkeys(_placed(profile, path)[0] for path in profile.facts))
    return places.index(place)


def _pairs(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Key and value per line under a title, long values wrapped; nothing without rows."""
    rows = list(rows)
    if not rows:
        return ""
    width = max(len(key) for key, _ in rows)
    lines = [title]
    for key, value in rows:
        lines += _wrapped(value, " " * (width + 4), f"  {key:<{width}}  ")
    return "\n".join(lines)


def _wrapped(text: str, indent: str, first: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent if first is None else first, subsequent_indent=indent, break_on_hyphens=False
    )
