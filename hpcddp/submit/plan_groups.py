"""A sweep's points group by group: what varies in each group, what each comes to, and once what all of them have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from textwrap import wrap

from hpcddp.core.text import count, first_few, table, thousands
from hpcddp.submit.plan import PlanRow, differing_keys, titles_of

WIDTH = 80
"""Of a terminal, in columns."""

NAME, LINE = 20, 43
"""Columns for a group's name and for what varies in it."""

MOST, LONGEST = 8, 32
"""Values of a key, and combinations, that are all listed; characters of a value."""

NODES, GPUS = "layout.nodes", "layout.gpus_per_node"

COMMON = (
    *("workload.script", "workload.model", "workload.data.name", "workload.precision", "workload.batch_per_gpu"),
    *("workload.loader_workers_per_rank", "layout.node_type", "layout.physical_cores_per_rank"),
)
"""Keys that are given even where no point differs in them."""

Facts = Mapping[str, str | None]
"""Key -> value of one point; None where it has no effect."""

Sums = Mapping[str, Callable[[PlanRow], float | None]]
"""Title -> what is summed over the points of a group; a column with None is left out."""


def groups_text(names: Iterable[str], rows: Sequence[PlanRow], sums: Sums) -> str:
    """What the points have in common, then a block for each group: its name, what varies, and sums over all of its points, those
    of an earlier group too.
    """
    keys = list(dict.fromkeys([*COMMON, *differing_keys(rows), NODES, GPUS, "partition", "qos"]))
    titles = {key: title.replace("GPU", "GPU" if rows[0].gpus else "rank") for title, key in titles_of(keys).items()}
    members = {name: [row for row in rows if name in (row.groups or ("",))] for name in (*names, "")}
    groups = {name: found for name, found in members.items() if found}
    facts = {
        name: [{key: _fact(row, key) for key in keys} for row in found if not row.is_added or all(row.is_added for row in found)]
        for name, found in groups.items()
    }
    usual = {key: _usual([{each[key] for each in of} for of in facts.values()]) for key in keys}
    given = {name: _given(of, usual) for name, of in facts.items()}
    everywhere = [
        key for key in keys if key not in (NODES, GPUS) and not all(key in axes + more for axes, more in given.values())
    ]
    common = ", ".join(f"{titles[key]} {usual[key]}" for key in everywhere if usual[key] not in (None, "-"))
    shown = {title: value for title, value in sums.items() if None not in map(value, rows)}
    cells = list[Sequence[str]]()
    for name, found in groups.items():
        numbers = [_total([value(row) or 0 for row in found]) for value in shown.values()]
        lines = [*_varying(facts[name], *given[name], titles), *_notes(name, found)]
        block = zip_longest(wrap(name or "all", NAME), lines, fillvalue="")
        cells += [[*line, *(numbers if i == 0 else [""] * len(numbers))] for i, line in enumerate(block)]
    head = wrap(f"All points, unless listed below: {common}", WIDTH, subsequent_indent="  ")
    return "\n".join([*head, "", table(("group", "what varies", *shown), cells, left=("group", "what varies"), indent="")])


def _fact(row: PlanRow, key: str) -> str | None:
    work, is_full = row.point["work"], row.point["measure.input"] == "full"
    unused = {"measure.steps": work != "steps", "measure.evaluate": work == "train" or not is_full}
    if unused.get(key, False):
        return None
    value = {"partition": row.partition, "qos": row.qos}.get(key, row.point.get(key))
    text = "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _usual(values: Sequence[set[str | None]]) -> str | None:
    """What most of the groups have in which it does not vary."""
    votes = Counter(next(iter(of)) for of in values if len(of) == 1)
    return votes.most_common(1)[0][0] if votes else None


def _given(facts: Sequence[Facts], usual: Facts) -> tuple[list[str], list[str]]:
    """The keys that vary in a group; those of its size that do not, and of what is unusual."""
    first = {key: next((each[key] for each in facts if each[key] is not None), None) for key in usual}
    axes = [key for key in usual if any(each[key] not in (None, first[key]) for each in facts)]
    is_given = {**{key: first[key] not in (None, "-", usual[key]) for key in usual}, NODES: first[NODES] != "1", GPUS: True}
    return axes, [key for key in usual if key not in axes and is_given[key]]


def _varying(facts: Sequence[Facts], axes: Sequence[str], others: Sequence[str], titles: Mapping[str, str]) -> list[str]:
    """`nodes 1, 2, 4 x 4 GPUs`: a product; where the points are several, a line for each and what these have in common."""
    names = [titles[key] for key in axes]
    products = [[*map(_values, row)] for row in _products([tuple(each[key] or "-" for key in axes) for each in facts])]
    size = [count(int(facts[0][key] or 1), titles[key].split("/")[0].rstrip("s")) for key in others if key in (NODES, GPUS)]
    unusual = ", ".join(f"{titles[key]} {facts[0][key]}" for key in others if key not in (NODES, GPUS))
    parts = [[f"{name} {value}" for name, value in zip(names, row, strict=True)] for row in products]
    if len(products) == 1:
        return _wrapped([*parts[0], *size], unusual)
    words = [name for name, cell in zip(names, products[0], strict=True) if not cell[:1].isdigit()]
    lines = table(names, products[:MOST], left=words, indent="").splitlines()
    if max(map(len, lines)) > LINE:
        lines = [line for row in parts[:MOST] for line in _wrapped(row)]
    more = [f"and {count(len(products) - MOST, 'more combination')}: --points"] * (len(products) > MOST)
    return [*lines, *more, *_wrapped(size, unusual)]


def _wrapped(factors: Sequence[str], unusual: str = "") -> list[str]:
    """`nodes 1, 2 x 4 GPUs with precision fp16`; a factor stays on one line where it can."""
    text = " x ".join(factor.replace(" ", "\xa0") if len(factor) < LINE - 4 else factor for factor in factors)
    lines = wrap(f"{text}{f' with {unusual}' if unusual else ''}", LINE, subsequent_indent="  ")
    return [line.replace("\xa0", " ") for line in lines]


def _products(rows: Sequence[tuple[str, ...]]) -> list[list[tuple[str, ...]]]:
    """The rows as few products of values: those that differ in one column alone become one, column after column."""
    found: list[list[tuple[str, ...]]] = [[(value,) for value in row] for row in dict.fromkeys(rows)]
    for i in range(len(rows[0])):
        merged = dict[object, list[tuple[str, ...]]]()
        for row in found:
            same = merged.setdefault((*row[:i], *row[i + 1 :]), [*row[:i], (), *row[i + 1 :]])
            same[i] += row[i]
        found = list(merged.values())
    return found


def _values(values: Sequence[str]) -> str:
    if all(value.replace(".", "", 1).isdigit() for value in values):
        values = sorted(values, key=float)
    few = len(values) <= MOST
    return ", ".join(values) if few else f"{', '.join(values[:3])} ... {values[-1]} ({thousands(len(values))} values)"


def _notes(name: str, rows: Sequence[PlanRow]) -> list[str]:
    """`3 shared with in-node, nodes; +1 baseline`"""
    shared = [row.groups[0] for row in rows if row.groups and row.groups[0] != name]
    added = sum(row.is_added and row.groups[0] == name for row in rows)
    parts = [f"{len(shared)} shared with {first_few(list(dict.fromkeys(shared)))}"] if shared else []
    return wrap("; ".join([*parts, *[f"+{count(added, 'baseline')}"] * bool(added)]), LINE)


def _total(values: Sequence[float]) -> str:
    return thousands(sum(values), int(isinstance(values[0], float)))
