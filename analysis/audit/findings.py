"""What can be wrong with a table of results: a closed list, each with its weight and advice; and how a reader sees it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hpcddp.analysis.util.wording import WIDE
from hpcddp.core.run_root import spans
from hpcddp.core.text import count

KINDS = {
    "gpu_types_pooled": (3, "Average each GPU type by itself. Different hardware is not a repetition."),
    "average_outside_rows": (3, "Compute the average again from the rows, and publish the rows beside it."),
    "baselines_mixed": (3, "Give every row against one GPU and against one node, in two named columns."),
    "gpu_types_mixed_in_row": (3, "Request one GPU type by name. A mixed job runs at the speed of its slowest GPU."),
    "superlinear": (3, "Measure the baseline again, alone on its node. A slow baseline makes every other row look fast."),
    "configuration_changed": (3, "Use a baseline with the same parallelism, precision and techniques, or give both columns."),
    "batch_changed": (3, "Hold the batch per GPU or the global batch at every size, and give it in a column."),
    "ranks_disagree": (3, "Call the model that DDP wraps in the loop. Ranks that exchange gradients wait for each other."),
    "runs_disagree": (3, "Find what differed (other jobs on the node, input, clocks) before averaging, and use --exclusive."),
    "average_wrong": (2, "Compute the average again from the rows, and publish the rows beside it."),
    "speedup_wrong": (2, "Compute the speedup again from the times, and name its baseline and its average."),
    "efficiency_wrong": (2, "Compute efficiency as speedup over the ratio of GPUs, and name the baseline."),
    "baseline_misnamed": (2, "Name the baseline that was used, or compute the column again from the named baseline."),
    "throughput_wrong": (2, "Check which samples and which time were counted. Throughput is samples over time."),
    "total_wrong": (2, "State which of both rates was measured. The rate of all GPUs is that of one GPU times the GPUs."),
    "steps_wrong": (
        2,
        "Compute steps per epoch as samples over the global batch, rounded up (down if the last is dropped).",
    ),
    "baseline_unnamed": (1, "Name the baseline in the column's header: `efficiency vs 1 GPU`, `efficiency vs 1 node`."),
    "rate_of_one_gpu": (1, "State in the header whether a rate is of one GPU or of all: `tokens/s/GPU`."),
}
"""Class -> (weight: 3 the conclusion, 2 a number, 1 unclear; what to do)."""

WEIGHTS = {3: "a conclusion is in doubt", 2: "a number is wrong", 1: "a value is unclear"}
MANY = 8
"""Findings of one class shown in full; JSON has them all."""


@dataclass(frozen=True)
class Finding:
    """One thing that does not add up."""

    kind: str
    lines: tuple[int, ...]
    claimed: str
    follows: str
    sentence: str

    @property
    def plain(self) -> dict[str, Any]:
        said, (weight, advice) = asdict(self), KINDS[self.kind]
        return {"class": said.pop("kind"), "weight": weight, **said, "lines": list(self.lines), "advice": advice}


def by_weight(findings: Iterable[Finding]) -> list[Finding]:
    """In the order of KINDS, heaviest first, then by line; the same said of several rows is one finding."""
    lines: dict[Finding, list[int]] = {}
    for found in findings:
        lines.setdefault(replace(found, lines=()), []).extend(found.lines)
    merged = [replace(found, lines=tuple(sorted(set(of)))) for found, of in lines.items()]
    return sorted(merged, key=lambda found: (list(KINDS).index(found.kind), found.lines))


def to_text(name: str, findings: Sequence[Finding], holds: Mapping[str, int], unchecked: Mapping[str, int], rows: int) -> str:
    """A sentence, each class of findings once with its advice, what was checked and holds, and what was not checked."""
    first = f"{name}: nothing wrong found in {count(rows, 'row')}."
    if findings:
        does = "does" if len(findings) == 1 else "do"
        things = f"{count(len(findings), 'thing')} in {count(rows, 'row')} {does} not add up"
        first = textwrap.fill(f"{name}: {things}. First: {findings[0].sentence}.", WIDE)
    kinds = dict.fromkeys(finding.kind for finding in findings)
    blocks = [first, *(_class([finding for finding in findings if finding.kind == kind]) for kind in kinds)]
    said = {"checked and holds": holds, "not checked, because the table lacks what they follow from": unchecked}
    last = [f"{what}: {', '.join(count(n, kind[:-1]) for kind, n in of.items())}" for what, of in said.items() if of]
    if not last and not findings:
        last = ["the table has no average, speedup or efficiency to check"]
    return "\n\n".join([*blocks, *(["\n".join(last)] if last else [])])


def _class(findings: Sequence[Finding]) -> str:
    weight, advice = KINDS[findings[0].kind]
    lines = [f"{findings[0].kind.replace('_', ' ')}  ({WEIGHTS[weight]})"]
    for each in findings[:MANY]:
        ranges = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans(each.lines))
        where = f"{'line' if len(each.lines) == 1 else 'lines'} {ranges}"
        lines += textwrap.wrap(f"{where}: {each.sentence}.", WIDE, initial_indent="  ", subsequent_indent="    ")
    if len(findings) > MANY:
        lines.append(f"  and {len(findings) - MANY} more (all are in --format json)")
    return "\n".join([*lines, textwrap.fill(f"-> {advice}", WIDE, initial_indent="  ", subsequent_indent="     ")])
