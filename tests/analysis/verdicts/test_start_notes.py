"""What is said of the time from srun to the first step."""

from __future__ import annotations

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.verdicts.notes import start_notes
from hpcddp.core.start_up import StartUp


def runs(*first_steps_s: float, met_s: float = 5.0) -> list[Run]:
    known = [StartUp(until_met_s=met_s, until_first_step_s=each) for each in first_steps_s]
    return [Run(label="p", run=number, state="counts", start_up=each) for number, each in enumerate(known, start=1)]


def test_one_sentence_for_all_runs() -> None:
    """The median with the range; nothing where it is not recorded, or of runs that do not count."""
    said = "from srun to the first step 34 s (30 s to 2 min, median of 3 runs), 5 s of it until all ranks had met"
    assert list(start_notes(runs(34, 30, 125))) == [said]
    assert list(start_notes(runs(34))) == ["from srun to the first step 34 s, 5 s of it until all ranks had met"]
    rejected = Run(label="p", run=9, state="rejected", start_up=StartUp(until_met_s=1, until_first_step_s=2))
    assert list(start_notes([rejected, Run(label="p", run=1, state="counts")])) == []


def test_a_long_start_has_its_reason() -> None:
    """Ranks import before they meet."""
    (said,) = start_notes(runs(130, met_s=110))
    assert said.endswith("2 min of it until all ranks had met: imports from a parallel file system take that long")
