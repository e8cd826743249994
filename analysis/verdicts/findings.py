"""What a study's records come to, before it is put into words and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from hpcddp.analysis.study.axes import Axis, axes
from hpcddp.analysis.study.axis_judgement import judged_axes
from hpcddp.analysis.study.axis_words import leading_sentences
from hpcddp.analysis.study.comm_bench import comm_frame, comm_notes, fits_frame
from hpcddp.analysis.study.costs import with_training
from hpcddp.analysis.study.data_benches import data_bench_frame, data_bench_notes, newest_benches
from hpcddp.analysis.study.epochs import epochs_frame, no_targets, targets_frame
from hpcddp.analysis.study.exchanges import buckets_frame
from hpcddp.analysis.study.fit_frame import Fitted, fit_study, laws_frame
from hpcddp.analysis.study.fit_words import implied, law_notes
from hpcddp.analysis.study.frames import runs_frame
from hpcddp.analysis.study.limits import limits_frame, rates_by_input
from hpcddp.analysis.study.load import StudyRecords
from hpcddp.analysis.study.outliers import outlier_notes, outliers_frame
from hpcddp.analysis.study.readings import reading_notes, readings_frame
from hpcddp.analysis.study.scaling import scaling_frame
from hpcddp.analysis.study.series import Apart, differing, full_names
from hpcddp.analysis.study.stragglers import stragglers_frame
from hpcddp.analysis.study.trained import Facts, trained
from hpcddp.analysis.util.failures import Failures
from hpcddp.analysis.verdicts.accuracy import accuracy_sentences
from hpcddp.analysis.verdicts.advice import decided
from hpcddp.analysis.verdicts.best_setting import best_sentence
from hpcddp.analysis.verdicts.context import Case, PointRow, Verdict, listed
from hpcddp.analysis.verdicts.damaged import damaged_notes
from hpcddp.analysis.verdicts.data_notes import data_notes
from hpcddp.analysis.verdicts.detail import DetailTables, detail_tables, no_detail_tables
from hpcddp.analysis.verdicts.loader_notes import loader_notes
from hpcddp.analysis.verdicts.loaders import loaders_frame
from hpcddp.analysis.verdicts.notes import (
    check_notes,
    clock_notes,
    network_notes,
    notes,
    preflight_notes,
    restart_notes,
    start_notes,
    warmup_notes,
    window_notes,
)
from hpcddp.analysis.verdicts.sentence import nothing_counts, sentences, size_words
from hpcddp.analysis.verdicts.settings import Advice
from hpcddp.analysis.verdicts.staging_notes import staging_notes
from hpcddp.analysis.verdicts.to_accuracy import target_sentences
from hpcddp.analysis.verdicts.verdicts import cause, doubts, verdicts
from hpcddp.core.point import scaling_kind


@dataclass(frozen=True)
class Findings:
    """One study's tables and sentences."""

    records: StudyRecords
    kinds: list[str]
    """`strong scaling (fixed epoch)`; more than one where runs do different work."""
    runs: pd.DataFrame
    scaling: pd.DataFrame
    limits: pd.DataFrame
    loaders: pd.DataFrame
    """What loaders gave, a row per row of `scaling`, and which limit of theirs holds."""
    data_benches: pd.DataFrame
    """What `hpcddp bench data` measured."""
    stragglers: pd.DataFrame
    buckets: pd.DataFrame
    collectives: pd.DataFrame
    fits: pd.DataFrame
    """Latency and bandwidth of the collectives."""
    laws: pd.DataFrame
    """Laws fitted to throughput over nodes and GPUs; `implied` has what those of the shown series imply."""
    implied: list[str]
    outliers: pd.DataFrame
    epochs: pd.DataFrame
    """Every epoch of `work: train`."""
    targets: pd.DataFrame
    """How long each size takes to an accuracy."""
    apart: Apart
    shown: pd.DataFrame
    """Rows that tables and figures show: those of full training, or those of limited input where there are no others."""
    shown_apart: Apart
    sentences: list[str]
    trained: Facts
    """What was trained, on what and when."""
    verdicts: list[Verdict]
    notes: list[str]
    readings: pd.DataFrame
    """What telemetry read, a row per row of `shown`."""
    effects: list[Axis]
    """What each key changes, of which points of one size differ."""
    is_of_keys: bool
    """Whether that is what the study is about: its size does not vary."""
    detail: DetailTables
    """Single runs, for figures."""
    failures: Failures
    """Parts that raised an error, and so are missing above."""


def find(records: StudyRecords, train_epochs: int | None = None) -> Findings:
    """All findings about a study; `train_epochs` is the number of epochs of a complete training."""
    runs = runs_frame(records)
    scaling = with_training(scaling_frame(runs, records.points, records.hold), train_epochs)
    apart = differing(scaling["series"].unique())
    full = scaling[scaling["input"] == "full"]
    shown = full if len(full) else scaling
    shown_apart = differing(shown["series"].unique())
    names = full_names(shown_apart)
    stragglers = stragglers_frame(records.runs)
    buckets, fits = buckets_frame(records.runs), fits_frame(records.runs)
    failures, loading = Failures(records.failures), scaling[scaling["input"] == "io"]
    benches = newest_benches(records.data_benches)
    effects = failures.contain("effects", lambda: judged_axes(axes(runs, scaling)), list[Axis]())
    case = Case(records, runs, shown, names, rates_by_input(scaling), stragglers, buckets, fits, effects, loading)
    fitted = failures.contain("laws of scaling", lambda: fit_study(runs, scaling, records.hold), list[Fitted]())
    holding = [each for each in fitted if each.fit.holds]
    outliers = outliers_frame(runs)
    targets = failures.contain("time to accuracy", lambda: targets_frame(records, runs, shown), no_targets())
    readings = failures.contain("readings", lambda: readings_frame(shown, runs), readings_frame(shown[:0], runs[:0]))
    undecided = [
        *_all_notes(records, runs, shown, outliers, readings),
        *law_notes(fitted, full_names(apart)),
        *data_bench_notes(benches, scaling, case.runs_of),
    ]
    judged, noted = decided(verdicts(case, failures), undecided, records.points)
    return Findings(
        records=records,
        kinds=_kinds(case),
        runs=runs,
        scaling=scaling,
        limits=limits_frame(scaling, apart),
        loaders=failures.contain("loaders", lambda: loaders_frame(case, scaling), loaders_frame(case, scaling[:0])),
        data_benches=failures.contain(
            "benchmarks of data",
            partial(data_bench_frame, benches, scaling, case.runs_of),
            data_bench_frame([], scaling[:0], case.runs_of),
        ),
        stragglers=stragglers,
        buckets=buckets,
        collectives=comm_frame(records.runs),
        fits=fits,
        laws=laws_frame(holding),
        implied=implied([each for each in holding if each.series in names], names),
        outliers=outliers,
        epochs=epochs_frame(records, runs),
        targets=targets,
        apart=apart,
        shown=shown,
        shown_apart=shown_apart,
        sentences=nothing_counts(records.runs)
        or failures.contain("the sentences", partial(_sentences, case, shown_apart, judged, targets), list[str]()),
        trained=failures.contain("what was trained", lambda: trained(records.runs), dict[str, list[str]]()),
        verdicts=judged,
        readings=readings,
        effects=effects,
        is_of_keys=case.is_of_keys,
        detail=failures.contain("figures of single runs", lambda: detail_tables(case, judged), no_detail_tables()),
        notes=noted,
        failures=failures,
    )


def _all_notes(
    records: StudyRecords, runs: pd.DataFrame, shown: pd.DataFrame, outliers: pd.DataFrame, readings: pd.DataFrame
) -> list[Advice]:
    return [
        *records.warnings,
        *data_notes(records.runs),
        *damaged_notes(records.runs),
        *loader_notes(records.runs),
        *notes(shown),
        *clock_notes(runs),
        *window_notes(records.runs),
        *warmup_notes(records.runs),
        *start_notes(records.runs),
        *staging_notes(records.runs),
        *preflight_notes(records.preflights),
        *network_notes(records.runs),
        *check_notes(runs),
        *restart_notes(records.runs),
        *outlier_notes(outliers),
        *comm_notes(records.runs),
        *reading_notes(readings),
    ]


def _kinds(case: Case) -> list[str]:
    """Empty where no run trains."""
    if case.is_of_keys:
        return [f"effect of {listed([axis.name for axis in case.effects])} on {size_words(case.points.iloc[0])}"]
    return [scaling_kind(case.records.hold, work) for work in sorted({point.work for point in case.records.points} - {"comm"})]


def _sentences(case: Case, apart: Apart, judged: Sequence[Verdict], targets: pd.DataFrame) -> list[str]:
    def against(rows: Sequence[PointRow]) -> list[str]:
        return doubts(judged, [run for row in rows for run in case.runs_of(row)])

    best = best_sentence(case, against) if case.is_of_keys else ""
    found = [best] if best else sentences(case.points, apart, partial(cause, case), against)
    found += leading_sentences(case.effects) if case.is_of_keys else []
    return [*found, *accuracy_sentences(case), *target_sentences(targets, case.points, full_names(apart))]
