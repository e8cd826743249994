"""Records in; scaling table, sentence, figures, CSV and JSON out. The one public function is `analyze`.

    study.py      analyze: a run root -> one StudyResult per study; the table of contents of all below
    load.py       a study's folder -> Run values; ranks.py reads and checks the step rows of one attempt
    steps.py      formulas within a run: step, throughput, parts
    series.py     which points may be compared
    frames.py     runs as a table; scaling.py: points as a table: medians, intervals, speedup, efficiency
    findings.py   both tables with the sentences (sentence.py) and the notes (notes.py) on them
    told.py       findings as text (tables.py, wording.py) and as plain values; write.py: CSV and JSON files
    figures.py    which figures, and their files; figure_*.py: one function each, DataFrame -> Figure
    style.py      one look for all of them, with colours.py, axis.py (sizes), tracks.py (lines), labels.py (names of lines)

It reads records and nothing else: no torch, no submitit, no pickle. Imported as `hpcddp.analysis` (a link) only.
"""

from __future__ import annotations

if __name__ == "analysis":
    raise ImportError("this folder is imported as `hpcddp.analysis`: from hpcddp.analysis import analyze")

from hpcddp.analysis.study import StudyResult, analyze

__all__ = ["StudyResult", "analyze"]
