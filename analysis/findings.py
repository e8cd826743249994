"""What a study's records come to, before it is put into words and files."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from hpcddp.analysis.frames import runs_frame
from hpcddp.analysis.load import StudyRecords
from hpcddp.analysis.notes import notes
from hpcddp.analysis.scaling import scaling_frame
from hpcddp.analysis.sentence import sentences
from hpcddp.analysis.series import Apart, differing, full_names
from hpcddp.point import scaling_kind


@dataclass(frozen=True)
class Findings:
    """One study's tables and sentences."""

    records: StudyRecords
    kinds: list[str]
    """`strong scaling (fixed epoch)`; more than one where runs do different work."""
    runs: pd.DataFrame
    scaling: pd.DataFrame
    apart: Apart
    sentences: list[str]
    notes: list[str]


def find(records: StudyRecords) -> Findings:
    """The scaling table of a study and all that is said of it."""
    runs = runs_frame(records)
    scaling = scaling_frame(runs, records.points, records.hold)
    apart = differing(scaling["series"].unique())
    names = full_names(apart)
    return Findings(
        records=records,
        kinds=[scaling_kind(records.hold, work) for work in sorted({point.work for point in records.points})],
        runs=runs,
        scaling=scaling,
        apart=apart,
        sentences=sentences(scaling, names),
        notes=[*notes(scaling, names, records.points, records.hold), *records.warnings],
    )
