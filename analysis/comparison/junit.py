"""A comparison as JUnit XML, for continuous integration: a test case per point."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from hpcddp.analysis.comparison.compare import ComparedPoint, Comparison
from hpcddp.analysis.comparison.text import share
from hpcddp.core.text import count

NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, even escaped."""


def to_junit(found: Comparison) -> str:
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


def _case(suite: ET.Element, found: Comparison, label: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_clean(found.b.name), name=_clean(label))


def _numbers(point: ComparedPoint) -> str:
    found = point.ratio
    spread = "" if found.kind is None else f" ({found.kind} {found.low:.4f} to {found.high:.4f})"
    return f"throughput B / A {found.ratio:.4f}{spread}, {count(len(point.b.rates), 'run')} against {len(point.a.rates)}"


def _clean(text: str) -> str:
    return NOT_XML.sub("?", text)
