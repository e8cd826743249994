"""Pictures of terminals hold the text that was printed, in the columns in which it was printed."""

from __future__ import annotations

from xml.etree import ElementTree

from tests.docs.pictures import CELL, EDGE, terminal_svg

SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_holds_what_was_printed() -> None:
    lines = ["  a < b  &  c", "", "x" * 90]
    root = ElementTree.fromstring(terminal_svg("hpcddp plan", "\n".join(lines)))
    texts = root.findall(f"{SVG}text")
    assert [text.text for text in texts] == ["$ hpcddp plan", "a < b  &  c", "x" * 90]
    assert [float(text.attrib["x"]) for text in texts] == [EDGE, EDGE + 2 * CELL, EDGE]
    assert [float(text.attrib["y"]) for text in texts] == sorted({float(text.attrib["y"]) for text in texts})
    assert float(root.attrib["width"]) >= 90 * CELL
