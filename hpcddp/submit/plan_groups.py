"""A sweep's points group by group: what varies in each group, what each comes to, and once what all of them have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from textwrap import fill, wrap

from hpcddp.core.text import count, first_few, table, thousands
from hpcddp.submit.plan import PlanRow, differing_keys, titles_of
from hpcddp.sweep.groups import products_of

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
    groups = {name: [row for row in rows if name in (row.groups or ("",))] for name in (*names, "")}
    facts = {
        name: [{key: _fact(row, key) for key in keys} for row in [row for row in members if not row.is_added] or members]
        for name, members in groups.items()
        if members
    }
    votes = {key: Counter(of[0][key] for of in facts.values() if len({each[key] for each in of}) == 1) for key in keys}
    usual = {key: max(votes[key], key=votes[key].__getitem__, default=None) for key in keys}
    given = {name: _given(of, usual) for name, of in facts.items()}
    common = [key for key in keys if usual[key] not in (None, "-") and any(key not in own for own in given.values())]
    shown, cells = {title: value for title, value in sums.items() if None not in map(value, rows)}, list[Sequence[str]]()
    for name, of in facts.items():
        numbers = [_total([value(row) or 0 for row in groups[name]]) for value in shown.values()]
        lines = [*_varying(of, given[name], titles), *_notes(name, groups[name])]
        block = zip_longest(wrap(name or "all", NAME), lines, fillvalue="")
        cells += [[*line, *(numbers if i == 0 else [""] * len(numbers))] for i, line in enumerate(block)]
    pairs = ", ".join(f"{titles[key]} {usual[key]}".replace(" ", "\xa0") for key in common)
    head = fill(f"All points, unless listed below: {pairs}", WIDTH, subsequent_indent="  ").replace("\xa0", " ")
    heads = ("group", "what varies", *shown)
    return "\n".join([head, "", table(heads, cells, left=heads[:2], indent="")])


def _fact(row: PlanRow, key: str) -> str | None:
    work, is_full = row.point["work"], row.point["measure.input"] == "full"
    unused = {"measure.steps": work != "steps", "measure.evaluate": work == "train" or not is_full}
    if unused.get(key, False):
        return None
    value = {"partition": row.partition, "qos": row.qos}.get(key, row.point.get(key))
    text = "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _given(facts: Sequence[Facts], usual: Facts) -> dict[str, str]:
    """Key -> value, empty where it varies, of what a group has to say: that, what is unusual, and its GPUs."""
    found = {key: [*dict.fromkeys(each[key] for each in facts if each[key] is not None)] for key in usual}
    axes = {key: "" for key, values in found.items() if len(values) > 1}
    fixed = {key: str(values[0]) for key, values in found.items() if len(values) == 1}
    return axes | {key: value for key, value in fixed.items() if key == GPUS or value not in ("-", usual[key])}


def _varying(facts: Sequence[Facts], given: Mapping[str, str], titles: Mapping[str, str]) -> list[str]:
    """`nodes 1, 2, 4 x 4 GPUs`: a product; where the points are several, a line for each and what these have in common."""
    axes = [key for key, value in given.items() if not value]
    names = [titles[key] for key in axes]
    products = [[*map(_values, row)] for row in products_of([tuple(each[key] or "-" for key in axes) for each in facts])]
    size = [count(int(given[key]), titles[key].split("/")[0].rstrip("s")) for key in (NODES, GPUS) if given.get(key)]
    unusual = [
        f"{titles[key]} {value}".replace(" ", "\xa0") for key, value in given.items() if value and key not in (NODES, GPUS)
    ]
    parts = [[f"{name} {value}" for name, value in zip(names, row, strict=True)] for row in products]
    if len(products) == 1:
        return _wrapped([*parts[0], *size], ", ".join(unusual))
    words = [name for name, cell in zip(names, products[0], strict=True) if not cell[:1].isdigit()]
    lines = table(names, products[:MOST], left=words, indent="").splitlines()
    if max(map(len, lines)) > LINE:
        lines = [line for row in parts[:MOST] for line in _wrapped(row)]
    more = [f"and {count(len(products) - MOST, 'more combination')}: --points"] * (len(products) > MOST)
    return [*lines, *more, *_wrapped(size, ", ".join(unusual))]


def _wrapped(factors: Sequence[str], unusual: str = "") -> list[str]:
    """`nodes 1, 2 x 4 GPUs with precision fp16`; a factor stays on one line where it can."""
    text = " x ".join(factor.replace(" ", "\xa0") if len(factor) < LINE - 4 else factor for factor in factors)
    lines = wrap(f"{text}{f' with {unusual}' if unusual else ''}", LINE, subsequent_indent="  ")
    return [line.replace("\xa0", " ") for line in lines]


def _values(values: Sequence[str]) -> str:
    are_numbers = all(value.replace(".", "", 1).isdigit() for value in values)
    return first_few(sorted(values, key=float) if are_numbers else values, MOST)


def _notes(name: str, rows: Sequence[PlanRow]) -> list[str]:
    """`3 shared with in-node, nodes; +1 baseline`"""
    shared = [row.groups[0] for row in rows if row.groups and row.groups[0] != name]
    added = sum(row.is_added and row.groups[0] == name for row in rows)
    parts = [f"{len(shared)} shared with {first_few(list(dict.fromkeys(shared)))}"] if shared else []
    return wrap("; ".join([*parts, *[f"+{count(added, 'baseline')}"] * bool(added)]), LINE)


def _total(values: Sequence[float]) -> str:
    return thousands(sum(values), int(isinstance(values[0], float)))
