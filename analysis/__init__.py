"""Records in; scaling table, sentence, figures, CSV and JSON out. The one public function is `analyze`.

    study.py      analyze: a run root -> one StudyResult per study; the table of contents of all below
    load.py       a study's folder -> Run values; ranks.py reads and checks the step rows of one run
    steps.py      formulas within a run: step, throughput, parts
    series.py     which points may be compared; scaling.py: medians, intervals, speedup, efficiency
    notes.py      what a reader must know besides; sentence.py, tables.py: the words; write.py: the files
    figure_*.py   one function per figure, DataFrame -> Figure; colours.py, style.py, axis.py, labels.py: one look

It reads records and nothing else: no torch, no submitit, no pickle. Imported as `hpcddp.analysis` (a link) only.
"""

from __future__ import annotations

if __name__ == "analysis":
    raise ImportError("this folder is imported as `hpcddp.analysis`: from hpcddp.analysis import analyze")

from hpcddp.analysis.study import StudyResult, analyze

__all__ = ["StudyResult", "analyze"]
