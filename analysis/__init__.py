"""Records in; scaling table, sentence, figures, CSV and JSON out. The one public function is `analyze`.

Its rooms, each importing only those above it; docs/architecture.md has the way of a run through them:

    util/         words of numbers, folders and files of results, the cache, two things at a time
    records/      files to arrays: rows, ranks, buckets, attempts, all on one timeline
    runs/         the numbers of one run: resources, communication, all steps, the ranks, one step
    study/        tables over the runs of a study: points, series, speedups, costs, fits
    verdicts/     named findings with evidence and advice, a file per family; the sentence and the notes
    figures/      a DataFrame in, a figure out
    report/       `analyze` itself: the terminal, the page, CSV, JSON, Markdown and LaTeX
    comparison/   two studies: which points match, what else differs
    proposal/     the page of an application for computing time
    export/       runs for TensorBoard and Weights & Biases
    audit/        someone else's table: what in it does not add up

It reads records and nothing else: no torch, no submitit, no pickle. Imported as `hpcddp.analysis` (a link) only.
"""

from __future__ import annotations

if __name__ == "analysis":
    raise ImportError("this folder is imported as `hpcddp.analysis`: from hpcddp.analysis import analyze")

from hpcddp.analysis.report.api import analyze
from hpcddp.analysis.report.result import How, StudyResult

__all__ = ["How", "StudyResult", "analyze"]
