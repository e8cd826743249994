"""What is said of something that takes long."""

from __future__ import annotations

import io

from hpcddp.data.writing.progress import LOG_EVERY_S, ProgressLine, Rate


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_has_the_rate_and_the_time_left() -> None:
    """Of what was done since the first call: what was there before took no time."""
    rate = Rate("samples")
    assert rate.line(400, 1000, 5.0) == "400 of 1,000 samples (40 %)"
    assert rate.line(600, 1000, 25.0) == "600 of 1,000 samples (60 %), 10/s, 40 s left"
    assert rate.line(1000, 1000, 65.0) == "1,000 of 1,000 samples (100 %), 10/s"
    fast = Rate("samples")
    fast.line(0, 72_000_000, 0.0)
    assert fast.line(4_321_000, 72_000_000, 10.0) == "4,321,000 of 72,000,000 samples (6 %), 430,000/s, 3 min left"
    assert Rate("files").line(0, 0, 0.0) == "0 of 0 files (0 %)"


def test_a_log_has_a_line_now_and_then() -> None:
    """The first, one each LOG_EVERY_S, and the last; a terminal has one line that is written anew."""
    for out, first in ((io.StringIO(), "0 of 8 samples (0 %)\n"), (Terminal(), "\r\x1b[K0 of 8 samples (0 %)")):
        times_s = iter(number * LOG_EVERY_S / 4 for number in (0, *range(10)))
        progress = ProgressLine("samples", out, lambda times_s=times_s: next(times_s))  # type: ignore[misc]
        for done in range(9):
            progress(done, 8)
        lines = out.getvalue()
        assert lines.startswith(first)
        assert lines.endswith("\n")
        assert lines.count("\n") == (1 if out.isatty() else 3)
        assert "8 of 8 samples (100 %)" in lines.splitlines()[-1]
        progress(8, 8)
        assert out.getvalue() == lines
