"""A run root analyzed: every study in it read, compared, drawn and reported."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcddp.analysis.report.result import FORMATS, PLAINLY, How, StudyResult
from hpcddp.analysis.util.cache import Cache, fingerprint
from hpcddp.analysis.util.files import library, reported
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.run_root import Study, studies
from hpcddp.core.schema import did_you_mean

RESULT = "result"
"""What the analysis came to, by that name in the study's cache."""

NOT_READ = ("report", ".analysis", ".code", ".jobs")
"""Folders of a study whose files say nothing to its analysis."""


def analyze(root: Path, out: Path | None = None, how: How = PLAINLY) -> list[StudyResult]:
    """Analyzes each study at `root` and writes its report into `out`/STUDY, by default to where files.report_folder says.

    UsageError where `root` holds no study, a report cannot be written or `how` names what is not there; HpcddpError where the
    only study's study.json is damaged, or pyarrow is needed and not installed.
    """
    _refuse_unknown(how.to, FORMATS, "--to has no format")
    if how.columns:
        from hpcddp.analysis.report.tables import OF_BASELINE
        from hpcddp.analysis.report.write import SCALING

        _refuse_unknown(how.columns, [*SCALING, *OF_BASELINE], "scaling.csv has no column")
    if "parquet" in how.to:
        library("pyarrow", "parquet")
    found = studies(root) if root.is_dir() else []
    if not found:
        there = "no study in it" if root.is_dir() else "no such folder"
        raise UsageError(f"{root}: {there}; name the folder `hpcddp submit` wrote to (a study, or the one above), or submit one")
    return [_analyze(study, out, how, only=len(found) == 1) for study in found]


def _refuse_unknown(names: Sequence[str], known: Sequence[str], of: str) -> None:
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise UsageError(f"{of} `{unknown}`{did_you_mean(unknown, known)}")


def _analyze(study: Study, out: Path | None, how: How, only: bool) -> StudyResult:
    """From the cache where neither the study nor its report has changed since the last analysis."""
    name = study.folder.resolve().name
    cache_in, report = (out / ".analysis" / name, out / name) if out else (None, None)
    cache = Cache(study, cache_in)
    ours = [os.path.relpath(folder.resolve(), study.folder.resolve()) for folder in (cache_in, report) if folder]
    state = fingerprint(study.folder, repr(how), str(study.folder), str(out), leave=[*NOT_READ, *ours])
    earlier = _unchanged(cache.get(RESULT, state))
    if earlier:
        return earlier
    from hpcddp.analysis.report.pipeline import analyze_study  # with pandas: longer to load than what is known takes to show

    try:
        result, written = analyze_study(study, report, cache_in, how)
    except HpcddpError as error:
        if only or isinstance(error, UsageError):
            raise
        return _damaged(study, str(error))
    except MemoryError:
        raise
    except Exception as error:
        return _damaged(study, f"{study.folder}: {reported(error)}")
    if written and not result.failed:
        stored = [result.name, result.screen, list(result.full), result.plain, list(result.missing)]
        cache.put(RESULT, state, [*stored, str(written), _report_key(str(written))])
    return result


def _damaged(study: Study, why: str) -> StudyResult:
    from hpcddp.analysis.report.terminal import SCHEMA

    return StudyResult(study.name, why, (why,), {"schema": SCHEMA, "name": study.name, "error": why}, (), damaged=True)


def _unchanged(plain: Any) -> StudyResult | None:
    """The cached result, if the report is still as it was written."""
    try:
        name, screen, full, report_json, missing, report, key = plain
        holds = all(isinstance(each, str) for each in (name, screen, *full, report, key, *missing)) and full
        if not holds or not isinstance(report_json, dict) or _report_key(report) != key:
            return None
        return StudyResult(name, screen, tuple(full), report_json, tuple(missing))
    except (TypeError, ValueError):
        return None


def _report_key(folder: str) -> str | None:
    state = fingerprint(Path(folder))
    return state.key if state else None
