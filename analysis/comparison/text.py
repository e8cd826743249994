"""A comparison in words: a sentence, what differs, a table, what has no counterpart, notes; and as JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from xml.etree import ElementTree as ET

from hpcddp.analysis.comparison.compare import ComparedPoint, Difference, Side, StudyComparison, median_rate
from hpcddp.analysis.comparison.compared import differing_readings, ends_words
from hpcddp.analysis.report.table import aligned
from hpcddp.analysis.study.series import FOUND, differing, key_text, value_text
from hpcddp.analysis.util.wording import WIDE, quantity
from hpcddp.core.text import count

AT_MOST = 12
"""Differences and unmatched points that are listed one by one; the JSON has them all."""

NAMED = 3
"""Regressions that the sentence names."""

NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, even escaped."""


def compared_text(found: StudyComparison) -> str:
    """The comparison as the terminal shows it."""
    blocks = [
        [_side("A", found.a), _side("B", found.b), comparison_sentence(found)],
        _differences(found.differences),
        _table(found),
        [
            *_listed("accuracy", found, lambda point: point.accuracy.text if point.accuracy else ""),
            *_listed("time to", found, lambda point: point.to_accuracy.text if point.to_accuracy else ""),
        ],
        _listed("readings", found, lambda point: "; ".join(differing_readings(point.a.readings, point.b.readings))),
        _rows("effects", [each.text for each in found.effects if each.text]),
        [
            line
            for letter, side in (("A", found.a), ("B", found.b))
            for line in _headed(f"only in {letter}", [f"{each.label}: {each.reason}" for each in side.unmatched], 11, "")
        ],
        [f"note: {note}" for note in comparison_notes(found)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def comparison_sentence(found: StudyComparison) -> str:
    """`B trains 0.901 to 1.020 times as fast as A at 5 matched points; slower by more than 5 % at 1: 16 x 4 (0.901).`"""
    ratios = sorted(point.ratio.ratio for point in found.points)
    if len(found.points) == 1:
        (point,) = found.points
        times = f"{point.ratio.ratio:.3f}{ends_words(point.ratio)}"
        return f"B trains {times} times as fast as A at {point_size(point)}: {_judgement(point, found.threshold)}."
    extent = f"{ratios[0]:.3f} to {ratios[-1]:.3f}" if f"{ratios[0]:.3f}" != f"{ratios[-1]:.3f}" else f"{ratios[0]:.3f}"
    head = f"B trains {extent} times as fast as A at {len(found.points)} matched points"
    limit = f"slower by more than {share(found.threshold)}"
    called = {id(point): name for point, name in zip(found.points, point_names(found), strict=True)}
    slow = sorted(found.regressions, key=lambda point: point.ratio.ratio)
    slightly = sum(point.judgement == "slightly slower" for point in found.points)
    less = f"; slower by less at {slightly}" if slightly else ""
    if not slow:
        return f"{head}; {limit} at none{less}."
    named = "; ".join(f"{called[id(point)]} ({point.ratio.ratio:.3f})" for point in slow[:NAMED])
    more = f", and {len(slow) - NAMED} more" if len(slow) > NAMED else ""
    return f"{head}; {limit} at {len(slow)}: {named}{more}{less}."


def comparison_notes(found: StudyComparison) -> Iterator[str]:
    """What the numbers cannot say."""
    unsure = [point for point in found.points if not point.sure]
    if unsure:
        which = "every point has" if len(unsure) == len(found.points) else f"{len(unsure)} of {len(found.points)} points have"
        yield f"{which} fewer than six runs on a side: judged by the ratio of medians alone; `repeat: 6` gives an interval"
    mixed = [point for point in found.points if point.a.hook != point.b.hook]
    if mixed:
        yield f"at {_sizes(mixed)} only one side has runs without the communication hook: the ratio holds the hook's cost too"
    unclear = [point for point in found.points if point.judgement == "unclear"]
    if unclear:
        yield f"at {_sizes(unclear)} the interval reaches beyond {share(found.threshold)} on one side: more runs would decide"
    if found.unfinished:
        yield f"{len(found.unfinished)} of A's points have no run that counts in B yet"


def point_size(point: ComparedPoint) -> str:
    """`16 x 4`: nodes x GPUs per node."""
    nodes, gpus = point.a.layout
    return f"{nodes} x {gpus}"


def share(threshold: float) -> str:
    """`5 %`, `2.5 %`"""
    return f"{100 * threshold:g} %"


def point_names(found: StudyComparison) -> list[str]:
    """The name of each point: its size, with whatever else distinguishes it from the others."""
    others = [[f"{name} {text}" for name, text in more.items()] for more in _apart(found)]
    return [", ".join([point_size(point), *more]) for point, more in zip(found.points, others, strict=True)]


def _side(letter: str, side: Side) -> str:
    clusters = "+".join(sorted({point.cluster for point in side.records.points}))
    return f"{letter}  {side.name} ({clusters}, {side.facts.dates}): {side.place}"


def _judgement(point: ComparedPoint, threshold: float) -> str:
    limit = share(threshold)
    words = {
        "slower": f"slower by more than {limit}",
        "faster": f"faster by more than {limit}",
        "slightly slower": f"slower, but by less than {limit}",
        "slightly faster": f"faster, but by less than {limit}",
        "same": f"no difference found, and none of {limit}",
        "unclear": f"within {limit} or not, more runs would decide",
    }
    return words[point.judgement]


def _differences(found: Sequence[Difference]) -> list[str]:
    if not found:
        return ["differs   nothing that was recorded"]
    width = max(len(each.name) for each in found[:AT_MOST])
    room = (WIDE - 14 - width) // 2
    return _headed("differs", [f"{each.name.ljust(width)}  {_values(each.a, room)} -> {_values(each.b, room)}" for each in found])


def _values(values: Sequence[str], room: int) -> str:
    text = " + ".join(values)
    return text if len(text) <= room else f"{text[: room - 3]}..."


def _table(found: StudyComparison) -> list[str]:
    apart = _apart(found)
    keys = list(apart[0])
    kinds = {point.ratio.kind for point in found.points} - {None}
    head = f"B / A ({kinds.pop() if len(kinds) == 1 else 'spread'})" if kinds else "B / A"
    heads = ["nodes x GPUs", *keys, "n A", "n B", "A samples/s", "B samples/s", head, ""]
    rows = [
        [
            point_size(point),
            *(more[key] for key in keys),
            str(len(point.a.rates)),
            str(len(point.b.rates)),
            quantity(median_rate(point.a)),
            quantity(median_rate(point.b)),
            f"{point.ratio.ratio:.3f}{ends_words(point.ratio, kind=False)}",
            f"{point.judgement}{'' if point.sure else ' (median)'}",
        ]
        for point, more in zip(found.points, apart, strict=True)
    ]
    return [line.rstrip() for line in aligned(heads, rows).splitlines()]


def _listed(head: str, found: StudyComparison, text: Callable[[ComparedPoint], str]) -> list[str]:
    """What there is to say of each point; points of which it is the same share it."""
    texts: dict[str, list[str]] = {}
    for point, name in zip(found.points, point_names(found), strict=True):
        texts.setdefault(text(point), []).append(name)
    more = {said: f" and {len(of) - NAMED} more" if len(of) > NAMED else "" for said, of in texts.items()}
    return _rows(head, [f"{'; '.join(of[:NAMED])}{more[said]}: {said}" for said, of in texts.items() if said])


def _rows(head: str, listed: Sequence[str]) -> list[str]:
    rows = _headed(head, listed)
    return [line for row in rows for line in wrap(row, WIDE, subsequent_indent=" " * 12, break_long_words=False)]


def _headed(head: str, lines: Sequence[str], width: int = 10, where: str = ": --format json has them all") -> list[str]:
    """The first lines, `head` before them; the others only counted."""
    more = [f"and {len(lines) - AT_MOST} more{where}"] if len(lines) > AT_MOST else []
    return [f"{head if i == 0 else '':<{width}}{line}" for i, line in enumerate([*lines[:AT_MOST], *more])]


def _sizes(points: Sequence[ComparedPoint]) -> str:
    return ", ".join(dict.fromkeys(point_size(point) for point in points))


def _apart(found: StudyComparison) -> list[dict[str, str]]:
    """For each point in turn, what distinguishes it from others of its size, as study A has it."""
    outside = ("layout.nodes", "layout.gpus_per_node", *FOUND)
    texts = [key_text({name: value for name, value in point.a.key.items() if name not in outside}) for point in found.points]
    apart = differing(dict.fromkeys(texts))
    return [{name: value_text(value) for name, value in apart[text].items()} for text in texts]


def to_junit(found: StudyComparison) -> str:
    """Slower points fail; a point of A without a run that counts in B is an error, one that B does not have is skipped."""
    others = [each for each in found.a.unmatched if not each.unfinished]
    counts = {
        "tests": len(found.points) + len(found.a.unmatched),
        "failures": len(found.regressions),
        "errors": len(found.unfinished),
        "skipped": len(others),
    }
    plain = {"name": _clean(f"{found.b.name} against {found.a.name}"), **{name: str(number) for name, number in counts.items()}}
    suite = ET.Element("testsuite", plain)
    for point in found.points:
        case = _case(suite, found, point.a.label)
        if point.judgement == "slower":
            ET.SubElement(case, "failure", message=_clean(f"slower by more than {share(found.threshold)}: {_numbers(point)}"))
        ET.SubElement(case, "system-out").text = _clean(f"{_numbers(point)}: {point.judgement}")
    for each in found.a.unmatched:
        kind = "error" if each.unfinished else "skipped"
        ET.SubElement(_case(suite, found, each.label), kind, message=_clean(each.reason))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _case(suite: ET.Element, found: StudyComparison, label: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_clean(found.b.name), name=_clean(label))


def _numbers(point: ComparedPoint) -> str:
    runs = f"{count(len(point.b.rates), 'run')} against {len(point.a.rates)}"
    return f"throughput B / A {point.ratio.ratio:.4f}{ends_words(point.ratio, 4, ' to ')}, {runs}"


def _clean(text: str) -> str:
    return NOT_XML.sub("?", text)
