"""Damaged data: pictures that could not be decoded, in whose places others were trained on twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.util.wording import percent
from hpcddp.analysis.verdicts.context import AGAIN, DOUBTFUL, Case, Verdict, run_names
from hpcddp.core.damaged_record import DamagedFiles
from hpcddp.core.text import count

DAMAGED_SHARE = 0.001
"""Of the pictures read. ILSVRC2012 has none that Pillow cannot decode: one in a thousand is a copy that went wrong, and what is
trained on is not the data set any more."""

Found = tuple[Run, str, DamagedFiles]
"""A run, the split, and what was damaged in it."""


def damaged_data(case: Case) -> Iterator[Verdict]:
    """A run replaced as much as DAMAGED_SHARE of the pictures that it read, or more."""
    found = [each for each in _found(case.records.runs) if _share(each[2]) >= DAMAGED_SHARE]
    if found:
        run, split, files = max(found, key=lambda each: (_share(each[2]), each[0].name))
        runs = list({each[0].key: each[0] for each in found}.values())
        yield Verdict(
            where=f"in {count(len(runs), 'run')}",
            evidence=f"{_words(run, split, files)}; in their places others were taken twice",
            todo=f"copy the damaged files again (end.json names the first); then {AGAIN}",
            numbers={"damaged": files.pictures, "read": files.read, "share": _share(files)},
            runs=run_names(runs),
            weight=DOUBTFUL + min(0.99, _share(files)),
        )


def damaged_notes(runs: Sequence[Run]) -> Iterator[str]:
    """One note on the run with the most damaged pictures where they are too few for a verdict."""
    few = [each for each in _found(runs) if _share(each[2]) < DAMAGED_SHARE]
    if few:
        run, split, files = max(few, key=lambda each: (each[2].pictures, each[0].name))
        others = len({each[0].key for each in few}) - 1
        more = f", and some in {count(others, 'more run')}" if others else ""
        yield f"{_words(run, split, files)}{more}: the next picture of the batch was taken in the place of each"


def _found(runs: Sequence[Run]) -> list[Found]:
    return [(run, split, files) for run in runs for split, files in sorted(run.damaged.items()) if files.pictures]


def _share(files: DamagedFiles) -> float:
    return files.pictures / max(1, files.read)


def _words(run: Run, split: str, files: DamagedFiles) -> str:
    first = f", the first {files.first[0]}" if files.first else ""
    of = f"{files.pictures:,} of {count(files.read, f'{split} picture')} that {run.name} read"
    share = percent(_share(files)) if _share(files) >= 0.01 else f"{100 * _share(files):.1g} %"
    return f"{of} {'is' if files.pictures == 1 else 'are'} damaged ({share}{first})"
