"""What a study's records come to, before it is put into words and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pandas as pd

from hpcddp.analysis.study.accuracy import EPOCHS_COLUMNS, TARGET_COLUMNS, epochs_frame, targets_frame
from hpcddp.analysis.study.axes import Axis, axes
from hpcddp.analysis.study.axis_words import judged_axes, leading_sentences
from hpcddp.analysis.study.comm_bench import (
    BUCKET_COLUMNS,
    COMM_COLUMNS,
    FIT_COLUMNS,
    STRAGGLER_COLUMNS,
    buckets_frame,
    comm_frame,
    comm_notes,
    fits_frame,
    stragglers_frame,
)
from hpcddp.analysis.study.fits import LAW_COLUMNS, Fitted, fit_study, implied, law_notes, laws_frame
from hpcddp.analysis.study.frames import runs_frame, with_training
from hpcddp.analysis.study.load import StudyRecords
from hpcddp.analysis.study.readings import (
    LIMITS_COLUMNS,
    READING_COLUMNS,
    Rates,
    limits_frame,
    rates_by_input,
    reading_notes,
    readings_frame,
)
from hpcddp.analysis.study.scaling import OUTLIER_COLUMNS, outlier_notes, outliers_frame, scaling_frame
from hpcddp.analysis.study.series import Apart, differing, full_names
from hpcddp.analysis.study.trained import Facts, trained
from hpcddp.analysis.util.output import Failures
from hpcddp.analysis.verdicts.accuracy import accuracy_sentences, target_sentences
from hpcddp.analysis.verdicts.advice import decided
from hpcddp.analysis.verdicts.context import Advice, Case, PointRow, Verdict, listed
from hpcddp.analysis.verdicts.detail import DetailTables, detail_tables, no_detail_tables
from hpcddp.analysis.verdicts.gates import damaged_notes
from hpcddp.analysis.verdicts.loader_limit import LOADER_COLUMNS, loaders_frame
from hpcddp.analysis.verdicts.notes import (
    check_notes,
    clock_notes,
    data_notes,
    loader_notes,
    network_notes,
    notes,
    preflight_notes,
    restart_notes,
    start_notes,
    warmup_notes,
    window_notes,
)
from hpcddp.analysis.verdicts.sentence import best_sentence, loader_sentence, nothing_counts, sentences, size_words
from hpcddp.analysis.verdicts.staging_notes import staging_notes
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


def no_rows(columns: Mapping[str, str]) -> pd.DataFrame:
    """What stands in for a table that could not be made; `columns`: column -> type."""
    return pd.DataFrame(columns=list(columns)).astype(columns)


def find(records: StudyRecords, train_epochs: int | None = None) -> Findings:
    """All findings about a study; `train_epochs` is the number of epochs of a complete training.

    Errors in the tables of runs and of scaling, and in what tells series apart, are raised: nothing holds without these. Any
    other error costs the table, the notes or the sentences in which it is raised.
    """
    failures = Failures(records.failures)

    def table(of: str, columns: Mapping[str, str], make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        return failures.contain(of, make, no_rows(columns))

    runs = runs_frame(records)
    table_of_points = scaling_frame(runs, records.points, records.hold)
    scaling = failures.contain("costs of a training", lambda: with_training(table_of_points, train_epochs), table_of_points)
    apart = differing(scaling["series"].unique())
    full = scaling[scaling["input"] == "full"]
    shown = full if len(full) else scaling
    shown_apart = differing(shown["series"].unique())
    names, loading = full_names(shown_apart), scaling[scaling["input"] == "io"]
    stragglers = table("stragglers", STRAGGLER_COLUMNS, lambda: stragglers_frame(records.runs))
    buckets = table("buckets", BUCKET_COLUMNS, lambda: buckets_frame(records.runs))
    fits = table("fits of collectives", FIT_COLUMNS, lambda: fits_frame(records.runs))
    effects = failures.contain("effects", lambda: judged_axes(axes(runs, scaling)), list[Axis]())
    no_rates: Rates = {}
    rates = failures.contain("rates by input", lambda: rates_by_input(scaling), no_rates)
    case = Case(records, runs, shown, names, rates, stragglers, buckets, fits, effects, loading)
    fitted = failures.contain("laws of scaling", lambda: fit_study(runs, scaling, records.hold), list[Fitted]())
    holding = [each for each in fitted if each.fit.holds]
    outliers = table("outliers", OUTLIER_COLUMNS, lambda: outliers_frame(runs))
    targets = table("time to accuracy", TARGET_COLUMNS, lambda: targets_frame(records, runs, shown))
    readings = table("readings", READING_COLUMNS, lambda: readings_frame(shown, runs))
    of_tables: dict[str, Callable[[], Iterable[Advice]]] = {
        "notes on outliers": lambda: outlier_notes(outliers),
        "notes on collectives": lambda: comm_notes(records.runs),
        "notes on readings": lambda: reading_notes(readings),
        "notes on laws": lambda: law_notes(fitted, full_names(apart)),
    }
    undecided = [*records.warnings, *_all_of(failures, {**_notes_of_runs(records, runs, shown), **of_tables})]
    found = verdicts(case, failures)
    bare = found, [note for note in undecided if isinstance(note, str)]
    judged, noted = failures.contain("advice", lambda: decided(found, undecided, records.points), bare)
    shown_holding = [each for each in holding if each.series in names]
    return Findings(
        records=records,
        kinds=failures.contain("the kind of study", lambda: _kinds(case), list[str]()),
        runs=runs,
        scaling=scaling,
        limits=table("limits", LIMITS_COLUMNS, lambda: limits_frame(scaling, apart)),
        loaders=table("loaders", LOADER_COLUMNS, lambda: loaders_frame(case, scaling)),
        stragglers=stragglers,
        buckets=buckets,
        collectives=table("collectives", COMM_COLUMNS, lambda: comm_frame(records.runs)),
        fits=fits,
        laws=table("the table of laws", LAW_COLUMNS, lambda: laws_frame(holding)),
        implied=failures.contain("what laws imply", lambda: implied(shown_holding, names), list[str]()),
        outliers=outliers,
        epochs=table("epochs", EPOCHS_COLUMNS, lambda: epochs_frame(records, runs)),
        targets=targets,
        apart=apart,
        shown=shown,
        shown_apart=shown_apart,
        sentences=_all_of(failures, _sentences(case, shown_apart, judged, targets)),
        trained=failures.contain("what was trained", lambda: trained(records.runs), dict[str, list[str]]()),
        verdicts=judged,
        readings=readings,
        effects=effects,
        is_of_keys=case.is_of_keys,
        detail=failures.contain("figures of single runs", lambda: detail_tables(case, judged), no_detail_tables()),
        notes=noted,
        failures=failures,
    )


Said = TypeVar("Said")


def _all_of(failures: Failures, parts: Mapping[str, Callable[[], Iterable[Said]]]) -> list[Said]:
    """What the parts say, one after the other; one that raises says nothing."""
    none: list[Said] = []
    return [each for of, say in parts.items() for each in failures.contain(of, lambda say=say: list(say()), none)]  # type: ignore[misc]


def _notes_of_runs(records: StudyRecords, runs: pd.DataFrame, shown: pd.DataFrame) -> dict[str, Callable[[], Iterable[Advice]]]:
    return {
        "notes on data": lambda: data_notes(records.runs),
        "notes on damaged data": lambda: damaged_notes(records.runs),
        "notes on loaders": lambda: loader_notes(records.runs),
        "notes on scaling": lambda: notes(shown),
        "notes on clocks": lambda: clock_notes(runs),
        "notes on windows": lambda: window_notes(records.runs),
        "notes on warm-up": lambda: warmup_notes(records.runs),
        "notes on starts": lambda: start_notes(records.runs),
        "notes on staging": lambda: staging_notes(records.runs),
        "notes on preflight": lambda: preflight_notes(records.preflights),
        "notes on networks": lambda: network_notes(records.runs),
        "notes on checks": lambda: check_notes(runs),
        "notes on restarts": lambda: restart_notes(records.runs),
    }


def _kinds(case: Case) -> list[str]:
    """Empty where no run trains."""
    if case.is_of_keys:
        return [f"effect of {listed([axis.name for axis in case.effects])} on {size_words(case.points.iloc[0])}"]
    return [scaling_kind(case.records.hold, work) for work in sorted({point.work for point in case.records.points} - {"comm"})]


def _sentences(
    case: Case, apart: Apart, judged: Sequence[Verdict], targets: pd.DataFrame
) -> dict[str, Callable[[], Iterable[str]]]:
    def against(rows: Sequence[PointRow]) -> list[str]:
        return doubts(judged, [run for row in rows for run in case.runs_of(row)])

    def first() -> list[str]:
        best = best_sentence(case, against) if case.is_of_keys else ""
        found = [best] if best else sentences(case.points, apart, partial(cause, case), against)
        found = list(dict.fromkeys([*found, *filter(None, [loader_sentence(case, against)])]))
        return found + (leading_sentences(case.effects) if case.is_of_keys else [])

    return {
        "the sentences": lambda: nothing_counts(case.records.runs) or first(),
        "the sentences on accuracy": lambda: accuracy_sentences(case),
        "the sentences on time to accuracy": lambda: target_sentences(targets, case.points, full_names(apart)),
    }
