"""Records in; scaling table, sentence, figures, CSV and JSON out. The one public function is `analyze`.

    study.py      analyze: a run root -> one StudyResult per study, as told before where nothing has changed
    told_study.py a study afresh: the table of contents of all below
    records/      a study's folder -> Run values (load.py): rows.py checks a rank's file, ranks.py reads an attempt's steps,
                  buckets.py its all-reduces, windows.py when its ranks waited for them, all on one timeline (clocks.py);
                  one_step.py finds one step's rows; cells.py reads digits fast; kept.py: what was made of a run, as plain.py
                  writes it, until something changes
    numbers/      what follows from them. steps.py: formulas within a run; communication.py: what was hidden, transfer, peer wait;
                  intervals.py: how well medians are known, precision.py: for `submit --until-ci`; series.py: which points may be
                  compared; frames.py: runs as a table; scaling.py: points as a table: medians, intervals, speedup, efficiency;
                  breakdown.py, limits.py, stragglers.py, exchanges.py: parts, limits, ranks and buckets; costs.py: epochs, hours,
                  energy; distribution.py, rank_map.py, timeline.py: of a run all steps, its ranks and one step, for figures;
                  outliers.py, effects.py; fits.py: laws of scaling (fit_laws.py, fit_frame.py, fit_words.py);
                  comm_bench.py: collectives as `hpcddp bench comm` timed them
    verdicts/     named findings with evidence and advice, a file per family
    side_by_side.py  two runs, or two figures, at a time
    findings.py   the tables with the sentences (sentence.py) and the notes (notes.py) on them
    failures.py   what raises costs the run or the file it was about; output_files.py: how every file is written
    told.py       findings as text (tables.py, wording.py) and as plain values; write.py: CSV and JSON; place.py: which folder;
                  heads.py: what its tables and the report's say alike
    report/       index.html with report.css and report.js, report.md and LaTeX: tables.py (cells), figures.py, bars.py and
                  chart.py (inline SVG), close.py (single runs), remarks.py, provenance.py; export_tables.py
    figures/      which figures, and their files (figures.py), one function each, DataFrame -> Figure; style.py: one look for all,
                  with colours.py, axis.py, tracks.py, labels.py; references.py (reference_points.csv), overlay.py;
                  close_up.py: which runs are looked at closely; trained.py: what gradients reached of the network;
                  matplotlib_folder.py: where it may write
    comparison/   two studies: which points match, what else differs, in words and as JUnit XML
    proposal/     the page of an application for computing time: page.py (its words), blocks.py, write.py (formats)
    audit/        someone else's table -> what does not add up: table.py (reading), cells.py (digits as intervals), basis.py (how
                  speedups were taken), findings.py (the closed list), and one check a file
    export/       runs for other tools: exported.py (what of a run), to_tensorboard.py, to_wandb.py, to_mlflow.py

It reads records and nothing else: no torch, no submitit, no pickle. Imported as `hpcddp.analysis` (a link) only.
"""

from __future__ import annotations

if __name__ == "analysis":
    raise ImportError("this folder is imported as `hpcddp.analysis`: from hpcddp.analysis import analyze")

from hpcddp.analysis.report.api import analyze
from hpcddp.analysis.report.result import How, StudyResult

__all__ = ["How", "StudyResult", "analyze"]
