"""Nodes that a job cannot tell apart are one node type; the types get readable names and what a job asks for them by."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hpcddp.detect.fields import is_slice
from hpcddp.detect.nodes import LiveNode, node_list

FEATURE_SETS = 6
"""Nodes that differ in their features only are so many types at most; more of them are places (racks, switches), not kinds."""

GPU_MODEL = re.compile(r"(nvidia[-_])?(v|a|h|b|l|t|p|k|gh|gb|mi)[1-9]\d{1,2}[a-z]?([-_].*)?", re.IGNORECASE)
"""A feature that names the GPU where the GRES type does not: v100, a100_80gb, h100, mi250x."""


@dataclass(frozen=True, kw_only=True)
class LiveNodeType:
    """Nodes with the same cores, memory, GPUs and features."""

    nodes: tuple[LiveNode, ...]
    features: tuple[str, ...]
    """Those of all its nodes."""
    other_features: tuple[str, ...] = ()
    """Those of some of its nodes."""
    name: str = ""
    constraint: str | None = None
    """What selects its nodes among those that its GPU request fits, too."""
    rivals: tuple[str, ...] = ()
    """Names of types that a request for this one could be given instead."""

    @property
    def first(self) -> LiveNode:
        return self.nodes[0]

    @cached_property
    def gpu_types(self) -> tuple[tuple[str | None, int], ...]:
        """Whole GPUs before MIG slices, then the most numerous first."""
        return tuple(sorted(self.first.gpus or (), key=lambda each: (is_slice(each[0]), -each[1])))

    @property
    def gres_type(self) -> str | None:
        return self.gpu_types[0][0] if self.gpu_types else None

    @property
    def gpus(self) -> int | None:
        """Of the first type."""
        if self.first.gpus is None:
            return None
        return self.gpu_types[0][1] if self.gpu_types else 0

    @property
    def is_sliced(self) -> bool:
        """Whether all its GPUs are MIG slices."""
        return is_slice(self.gres_type)

    @cached_property
    def partitions(self) -> frozenset[str]:
        """Those with any of its nodes."""
        return frozenset(name for node in self.nodes for name in node.partitions or ())

    @property
    def names(self) -> str:
        return node_list(node.name for node in self.nodes)


def live_node_types(nodes: Iterable[LiveNode]) -> tuple[LiveNodeType, ...]:
    """All types: those with whole GPUs first, then those with MIG slices; of each, those with most nodes."""
    types = [each for same in _by_hardware(nodes) for each in _by_features(same)]
    types.sort(key=lambda each: (not each.gpus, each.is_sliced, -len(each.nodes), each.nodes[0].name))
    named = [replace(each, name=name) for each, name in zip(types, _names(types), strict=True)]
    return tuple(_with_constraint(each, named) for each in named)


def _by_hardware(nodes: Iterable[LiveNode]) -> list[list[LiveNode]]:
    groups: dict[object, list[LiveNode]] = defaultdict(list)
    for node in nodes:
        gpus = None if node.gpus is None else tuple(sorted((name or "", count) for name, count in node.gpus))
        groups[node.sockets, node.physical_cores, node.smt, node.job_memory_mb, gpus].append(node)
    return list(groups.values())


def _by_features(nodes: Sequence[LiveNode]) -> list[LiveNodeType]:
    groups: dict[frozenset[str], list[LiveNode]] = defaultdict(list)
    for node in nodes:
        groups[frozenset(node.features or ())].append(node)
    if len(groups) <= FEATURE_SETS:
        return [LiveNodeType(nodes=tuple(same), features=same[0].features or ()) for same in groups.values()]
    common = frozenset.intersection(*groups)
    some = sorted(frozenset.union(*groups) - common)
    first = nodes[0].features or ()
    return [LiveNodeType(nodes=tuple(nodes), features=tuple(f for f in first if f in common), other_features=tuple(some))]


def _names(types: Sequence[LiveNodeType]) -> list[str]:
    """The GPU's model and, where that is not enough, what else differs; a number where nothing says it in a word."""
    names = [_base(each) for each in types] if any(each.gpus for each in types) else ["node"] * len(types)
    for describe in _DIFFERENCES:
        clashing = [name for name, count in Counter(names).items() if count > 1]
        for clash in clashing:
            members = [i for i, name in enumerate(names) if name == clash]
            words = [describe(types[i], [types[j] for j in members if j != i]) for i in members]
            if len(set(words)) > 1:
                for i, text in zip(members, words, strict=True):
                    names[i] = "-".join(filter(None, (names[i], _plain(text))))
    return _numbered(names)


def _base(kind: LiveNodeType) -> str:
    if not kind.gpus:
        return "cpu"
    if kind.gres_type is not None:
        return _plain(re.sub(r"^(nvidia|amd)[-_]", "", kind.gres_type, flags=re.IGNORECASE)) or "gpu"
    return next((_plain(feature) for feature in kind.features if GPU_MODEL.fullmatch(feature)), "gpu")


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _numbered(names: Sequence[str]) -> list[str]:
    counts, used = Counter(names), Counter[str]()
    result = []
    for name in names:
        used[name] += 1
        result.append(f"{name}-{used[name]}" if counts[name] > 1 else name)
    return result


_DIFFERENCES: tuple[Callable[[LiveNodeType, Sequence[LiveNodeType]], str], ...] = (
    lambda kind, others: f"x{kind.gpus}",
    lambda kind, others: " ".join(name or "gpu" for name, _ in kind.gpu_types[1:]),
    lambda kind, others: f"{round(kind.first.job_memory_mb / 1024)}g" if kind.first.job_memory_mb is not None else "",
    lambda kind, others: f"{kind.first.physical_cores}c" if kind.first.physical_cores is not None else "",
    lambda kind, others: f"smt{kind.first.smt}",
    lambda kind, others: next((word for word in kind.features if not any(word in other.features for other in others)), ""),
)
"""In the order in which they are put behind a name."""


def _with_constraint(kind: LiveNodeType, types: Sequence[LiveNodeType]) -> LiveNodeType:
    """One feature that sets it apart from all it shares a partition and a GPU request with; all of its own, where no one does."""
    rivals = [other for other in types if other is not kind and _rivals(kind, other)]
    apart = [f for f in kind.features if not any(f in (*other.features, *other.other_features) for other in rivals)]
    if not rivals:
        return kind
    if apart:
        return replace(kind, constraint=apart[0])
    left = [other.name for other in rivals if set(kind.features) <= {*other.features, *other.other_features}]
    constraint = "&".join(kind.features) if kind.features and len(left) < len(rivals) else None
    return replace(kind, constraint=constraint, rivals=tuple(left))


def _rivals(kind: LiveNodeType, other: LiveNodeType) -> bool:
    """Whether a request for one node of the type, with all its GPUs, fits a node of the other."""
    if not kind.partitions & other.partitions:
        return False
    theirs = dict(other.first.gpus or ())
    offered = sum(theirs.values()) if kind.gres_type is None else theirs.get(kind.gres_type, 0)
    return offered >= (kind.gpus or 0)
