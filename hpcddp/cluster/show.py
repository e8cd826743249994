"""What `hpcddp clusters list` and `clusters show` say: the profiles' values, then how far each is to be trusted.

The words are the profile's own keys, so that what is read here can be found, and changed, in the YAML file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hpcddp.cluster.fact_text import Rows, fact_text, fits, mark, pairs, values, wrapped
from hpcddp.cluster.paths import typed_path
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile, read_profile
from hpcddp.cluster.profile_names import FOLDER, own_folder, own_profiles, profile_names
from hpcddp.cluster.show_sections import env_rules, partitions, qos_rules, rendezvous, slurm_rules, storage, topologies
from hpcddp.core.errors import UsageError
from hpcddp.core.schema import encode
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
    """One row per profile that can be read, the user's own ones last: name, status, nodes, GPUs per node, title; None is unknown.
    A row also has the file of one of the user's own, and what that extends.
    """
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
    sections = (
        *(_head, _node_types, topologies, slurm_rules, partitions, qos_rules, rendezvous, _fabric, storage),
        *(_environment, env_rules, _workload, _notes, _provenance, _legend),
    )
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
    return "\n".join([*lines, *wrapped(profile.note or "", "  ")])


def _node_types(profile: ClusterProfile) -> str:
    """A table, a column per type; types one below the other where that is too wide or there is but one."""
    columns = {name: dict(_node_rows(profile, name)) for name in profile.node_types}
    titles = [f"{name} (default)" if name == profile.default_node_type else name for name in columns]
    keys = list(dict.fromkeys(key for rows in columns.values() for key in rows))
    header = ["", *titles]
    text = table(header, [[key, *(rows.get(key) for rows in columns.values())] for key in keys], left=header)
    if len(columns) > 1 and fits(text):
        return f"Node types\n{text}"
    return "\n\n".join(
        pairs(f"Node type {title}", list(rows.items())) for title, rows in zip(titles, columns.values(), strict=True) if rows
    )


def _node_rows(profile: ClusterProfile, name: str) -> Rows:
    """The facts of a node type and, where hardware threads make the two differ, the CPUs that Slurm counts."""
    node = profile.node_types[name]
    rows = values(profile, f"node_types.{name}", node)
    if node.smt == 1 or node.logical_cpus is None:
        return rows
    after = [key for key, _ in rows].index("smt") + 1
    return [*rows[:after], ("CPUs in Slurm", str(node.logical_cpus)), *rows[after:]]


def _fabric(profile: ClusterProfile) -> str:
    return pairs("Fabric", values(profile, "fabric", profile.fabric))


def _environment(profile: ClusterProfile) -> str:
    rows = values(profile, "compute", profile.compute)
    rows += [(f"env {key}", value) for key, value in profile.env.items()]
    if profile.login_hosts:
        fact = profile.facts.get("login_hosts")
        rows.append(("login_hosts", ", ".join(profile.login_hosts) + (mark(fact) if fact else "")))
    return pairs("Environment of the workers", rows)


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
    return pairs("Default workload", rows)


def _notes(profile: ClusterProfile) -> str:
    """One entry per fact that has something to add: what other sources say instead, and the remark."""
    rows = []
    for path, fact in profile.facts.items():
        claims = [f"{fact_text(one)} [{one.grade} {one.source}]" for one in (fact, *fact.conflicts)]
        texts = [f"{claims[0]}, but {', '.join(claims[1:])}"] if fact.conflicts else []
        texts += [fact.note] if fact.note else []
        if texts:
            rows.append((" ".join(placed(profile, path)), "; ".join(texts)))
    return pairs("Notes, and where sources differ (*)", rows)


def _provenance(profile: ClusterProfile) -> str:
    """Every fact under its grade and source, gathered per part of the profile."""
    gathered: dict[tuple[str, str], list[str]] = {}
    for path, fact in profile.facts.items():
        place, key = placed(profile, path)
        gathered.setdefault((place, f"{fact.grade} {fact.source}"), []).append(key)
    if not gathered:
        return ""
    first, second = (max(len(pair[i]) for pair in gathered) + 2 for i in (0, 1))
    lines, last = ["Where each value comes from"], None
    for (place, origin), keys in sorted(gathered.items(), key=lambda item: _place_in_file(profile, item[0][0])):
        lead = f"  {place if place != last else '':<{first}}{origin:<{second}}"
        lines += wrapped(", ".join(dict.fromkeys(keys)), " " * len(lead), lead)
        last = place
    return "\n".join(lines)


def _legend(profile: ClusterProfile) -> str:
    if not profile.facts:
        return ""
    used = {source for fact in profile.facts.values() for source in (fact.source, *(o.source for o in fact.conflicts))}
    used |= {rule.source for rule in profile.env_rules}
    grades = pairs("Grades (a value without a mark is graded A, or is a choice of this profile)", list(GRADES.items()))
    return f"{grades}\n\n" + pairs("Sources", [(key, text) for key, text in profile.sources.items() if key in used])


def placed(profile: ClusterProfile, path: str) -> tuple[str, str]:
    """A dotted path as the part it belongs to and its key: `slurm.qos.1.max_nodes` -> (`qos dev`, `max_nodes`)."""
    *parents, key = path.split(".")
    if parents[:1] == ["node_types"]:
        return " ".join(parents[1:]) or "node types", key
    if parents[:2] == ["slurm", "partitions"] and parents[2:]:
        return f"partition {parents[2]}", key
    if parents[:2] == ["slurm", "qos"] and parents[2:]:
        rule = profile.slurm.qos[int(parents[2])]
        in_partition = f" in {rule.partition}" if rule.partition and not rule.name else ""
        return f"qos {rule.name or 'none'}{in_partition}", key
    return " ".join(parents) or profile.name, key


def _place_in_file(profile: ClusterProfile, place: str) -> int:
    """Where a part comes in the file; sorting by it is stable within a part."""
    places = list(dict.fromkeys(placed(profile, path)[0] for path in profile.facts))
    return places.index(place)
