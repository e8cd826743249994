"""The upper part of a JPEG: a decoder stops behind the rows that it is told of, and saves the time that the others take."""

from __future__ import annotations

from collections.abc import Iterator

MARKER, START_OF_SCAN, END_OF_IMAGE = 0xFF, 0xDA, b"\xff\xd9"
SEQUENTIAL = (0xC0, 0xC1)
"""Frames whose rows come in order; in a progressive one every row is in every scan."""

MORE_ROWS = 4
"""Below the last row that is needed: colours of half the resolution are interpolated with the next row of their own."""


def upper_rows(content: bytes, rows: int) -> bytearray | None:
    """The file with a header that says `rows` rows, or a few more; None where no row would be saved.

    None, too, where the rows do not come in one sequential scan, and where the file does not end as a complete one does: whether
    the rest is damaged is then for a decoder of all of it to say.
    """
    if not content.endswith(END_OF_IMAGE):
        return None
    frame = None
    for marker, at, length in _segments(content):
        if marker in SEQUENTIAL:
            frame = (at, length)
        elif marker == START_OF_SCAN:
            return _limited(content, frame, rows, content[at]) if frame else None
    return None


def _segments(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Marker, where its content begins, and its length, up to the first scan's header."""
    at = 2
    while at + 4 <= len(content) and content[at] == MARKER:
        marker, length = content[at + 1], int.from_bytes(content[at + 2 : at + 4], "big")
        if length < 3 or at + 2 + length > len(content):
            return
        yield marker, at + 4, length - 2
        at += 2 + length


def _limited(content: bytes, frame: tuple[int, int], rows: int, scanned: int) -> bytearray | None:
    """`frame`: where its content begins and its length: precision, height, width, components of three bytes each."""
    at, length = frame
    components = content[at + 5] if length > 5 else 0
    if not components or scanned != components or length != 6 + 3 * components:
        return None
    block = 8 * max(content[at + 7 + 3 * number] & 15 for number in range(components))
    limited = -(-(rows + MORE_ROWS) // block) * block if block else 0
    if not 0 < limited < int.from_bytes(content[at + 1 : at + 3], "big"):
        return None
    patched = bytearray(content)
    patched[at + 1 : at + 3] = limited.to_bytes(2, "big")
    return patched
