"""A study's records as values: which runs count, which are rejected and why, which are missing.

Two runs are read at a time, and reduced to their statistics at once; these are kept, and taken as long as nothing has changed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpcddp.analysis.records.json_files import StudyFile, read_expected, read_prediction, read_preflights
from hpcddp.analysis.records.rows import is_large
from hpcddp.analysis.runs.load_run import completed_points, load_run, with_script
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.util.cache import Cache, fingerprint, from_plain, to_plain
from hpcddp.analysis.util.files import Failure, contain, is_there, read_object, read_regular
from hpcddp.analysis.util.parallel import do_nothing, map_in_parallel
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Point, flat_keys, point_from_dict
from hpcddp.core.prediction import PredictedPoint
from hpcddp.core.preflight import PreflightRecord
from hpcddp.core.run_root import RunKey, Study, run_ranges
from hpcddp.core.schema import LARGEST_INT
from hpcddp.core.study_files import read_outcomes
from hpcddp.core.text import count, escape_controls, natural, one_line

Loaded = tuple[Run, tuple[str, ...]]
"""A run, and warnings about its records that do not stop it from counting."""

Attempted = Loaded | Failure
"""A loaded run, or what reading it raised."""


@dataclass(frozen=True)
class StudyRecords:
    """All runs of a study, by label and number; `points` are the planned ones whose point.json is there."""

    name: str
    hold: str
    """`batch_per_gpu` or `global_batch`: what stays constant as ranks grow."""
    points: tuple[Point, ...]
    runs: tuple[Run, ...]
    warnings: tuple[str, ...]
    train_epochs: int | None
    """Epochs of a complete training, as the sweep says."""
    preflights: tuple[PreflightRecord, ...] = ()
    """Oldest first."""
    predicted: Mapping[str, PredictedPoint] = field(default_factory=dict)
    """By label, of points with a band."""
    failures: tuple[Failure, ...] = ()
    """Runs whose reading raised: they are rejected."""
    large: bool = False
    """The runs were worth reading in several processes."""


def load_study(study: Study, keep_in: Path | None = None, meanwhile: Callable[[], None] = do_nothing) -> StudyRecords:
    """Reads a study's folder; HpcddpError where there is none, or study.json is damaged.

    What is made of its runs is stored in `keep_in`, by default where files.analysis_cache_folder says. While processes read
    a large study, this one calls `meanwhile`.
    """
    if not study.folder.is_dir():
        raise HpcddpError(f"{study.folder}: no study there, nothing was submitted to it yet; look at the name")
    study_file = read_expected(study)
    warnings: list[str] = []
    folders = study.folder.iterdir()
    labels = sorted((folder.name for folder in folders if is_there(study.point_file(folder.name))), key=natural)
    points = {label: _read_point(study, label, warnings) for label in labels}
    numbers = {
        label: sorted({*range(1, study_file.repeats.get(label, 0) + 1), *_run_numbers(study, label)})
        for label in sorted({*study_file.repeats, *points}, key=natural)
    }
    keys = [RunKey(label, run) for label in numbers for run in numbers[label]]
    attempted, large = _load_runs(study, Cache(study, keep_in), keys, points, meanwhile)
    failures = tuple(each for each in attempted if isinstance(each, Failure))
    loaded = [
        (Run(label=key.label, run=key.run, state="rejected", reason=each.reason, point=points.get(key.label)), ())
        if isinstance(each, Failure)
        else each
        for key, each in zip(keys, attempted, strict=True)
    ]
    warnings.extend(warning for _, odd in loaded for warning in odd)
    runs = _in_sweep([run for run, _ in loaded], study_file, warnings)
    preflights, predicted = read_preflights(study, warnings), read_prediction(study, warnings)
    gone = {label for label, repeat in study_file.in_sweep.items() if not repeat} - {run.label for run in runs}
    planned = [point for label, point in points.items() if point is not None and label not in gone]
    return StudyRecords(
        name=study_file.name,
        hold=study_file.hold,
        points=tuple(completed_points(planned, runs, study_file.hold)),
        runs=tuple(runs),
        failures=failures,
        warnings=tuple(one_line(warning) for warning in warnings),
        train_epochs=study_file.train_epochs,
        preflights=preflights,
        predicted=predicted,
        large=large,
    )


def _in_sweep(runs: Sequence[Run], study_file: StudyFile, warnings: list[str]) -> list[Run]:
    """Without runs that have no result and were not in the sweep at the last submission; a warning counts them."""
    out = {run.key for run in runs if run.state == "missing" and run.run > study_file.in_sweep.get(run.label, run.run)}
    if out:
        are, them = ("is", "it") if len(out) == 1 else ("are", "them")
        which = f"{count(len(out), 'run')} without a result {are} omitted, because the sweep no longer has {them}"
        warnings.append(f"{which}: {run_ranges(out)}")
    return [run for run in runs if run.key not in out]


def _load_runs(
    study: Study, cache: Cache, keys: Sequence[RunKey], points: Mapping[str, Point | None], meanwhile: Callable[[], None]
) -> tuple[list[Attempted], bool]:
    """Runs in the order of `keys`, from the cache or, two at a time, from their records; and whether there was much to read."""
    folders = ((key, study.run_dir(*key)) for key in keys)
    inputs = {key: fingerprint(run, repr(key), repr(points.get(key.label))) for key, run in folders if run.is_dir()}
    known = {key: _from_cache(cache.get(_cache_name(key), inputs[key]), points.get(key.label)) for key in inputs}
    found: dict[RunKey, Attempted] = {key: loaded for key, loaded in known.items() if loaded is not None}
    unread = [key for key in keys if key not in found]
    sizes = [size for key in unread if (size := inputs.get(key))]
    large = is_large(sum(size.csv_files for size in sizes), sum(size.csv_bytes for size in sizes))
    outcomes = _read_outcomes(study)

    def load(key: RunKey) -> Loaded:
        odd: list[str] = []
        blank = Run(label=key.label, run=key.run, state="missing", point=points.get(key.label))
        run = load_run(study.attempts(*key), blank, outcomes.get(key, {}), odd)
        if run.attempt is not None:
            with contextlib.suppress(TypeError):
                cache.put(_cache_name(key), inputs.get(key), to_plain((replace(run, point=None), tuple(odd))))
        return run, tuple(odd)

    def attempt(key: RunKey) -> Attempted:
        return contain(f"r{key.run} of {one_line(key.label)}", lambda: load(key))

    found |= zip(unread, map_in_parallel(attempt, unread, large, meanwhile), strict=True)
    return [found[key] for key in keys], large


def _read_outcomes(study: Study) -> dict[RunKey, dict[str, str]]:
    """Run -> its jobs -> why they failed, as their backend said when it was asked last."""
    found: dict[RunKey, dict[str, str]] = {}
    with contextlib.suppress(OSError, ValueError):
        for of, reason in read_outcomes(read_regular(study.outcomes_file)).items():
            found.setdefault(RunKey(of.label, of.run), {})[of.job] = escape_controls(reason)
    return found


def _cache_name(key: RunKey) -> str:
    return f"{key.label}.r{key.run}"


def _from_cache(plain: Any, point: Point | None) -> Loaded | None:
    try:
        run, odd = from_plain(Loaded, plain)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    return with_script(replace(run, point=point), run.script), odd


def _read_point(study: Study, label: str, warnings: list[str]) -> Point | None:
    """None (with a warning) where it cannot be read: no run of the point counts."""
    try:
        point = point_from_dict(read_object(study.point_file(label))["point"])
        numbers = [value for value in flat_keys(point).values() if isinstance(value, int)]
        if max(*numbers, point.global_batch) > LARGEST_INT:
            raise HpcddpError("a number in it is too large to be true")
    except (HpcddpError, KeyError, FileNotFoundError) as error:
        warnings.append(f"{label}/point.json is damaged: {error}. Submit the sweep again to write it anew, or move it away")
        return None
    return point


def _run_numbers(study: Study, label: str) -> list[int]:
    """Numbers of the folders r1, r2, ...; longer ones than any study reaches are no runs."""
    found = (re.fullmatch(r"r([1-9][0-9]{0,8})", path.name) for path in (study.folder / label).glob("r*"))
    return [int(match[1]) for match in found if match]
