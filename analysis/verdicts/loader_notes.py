"""What a reader must know of loaders besides their limit: more processes than processors, batches that were not read ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.verdicts.settings import WORKERS, Advice, Set, phrase
from hpcddp.core.text import count


def loader_notes(runs: Sequence[Run]) -> Iterator[Advice]:
    """A note of each kind, of the run that has most of it."""
    counting = [run for run in runs if run.state == "counts" and run.trains and run.loader]
    crowded = [(run, cpus) for run in counting if (cpus := _cpus_of_rank(run)) is not None and _workers(run) > cpus]
    if crowded:
        run, cpus = max(crowded, key=lambda each: (_workers(each[0]) / each[1], each[0].name))
        fewer, why = _fewer(run, cpus)
        yield phrase(
            f"a rank of {run.name}{_more(len(crowded), ', and of {},')} has {count(_workers(run), 'loader worker')} on "
            f"{count(cpus, 'CPU')}, which reading and training share: ",
            Set({WORKERS: fewer}),
            why,
        )
    cut = [run for run in counting if run.loader and run.loader.prefetch_cut]
    if cut and cut[0].loader:
        yield f"{cut[0].name}{_more(len(cut), ' and {}')}: {cut[0].loader.prefetch_cut}"


def _workers(run: Run) -> int:
    return run.loader.workers if run.loader else 0


def _fewer(run: Run, cpus: int) -> tuple[int | str, str]:
    """A setting, and what it does: `auto` where a sweep knows a rank's cores and that makes fewer; else their number less one."""
    planned = run.point.layout.physical_cores_per_rank if run.point else None
    threads = run.signals.processors.threads if run.signals and run.signals.processors else 1
    if planned and planned * threads <= cpus:
        return "auto", " takes as many as it has cores for"
    return max(1, cpus // threads - 1), ""


def _cpus_of_rank(run: Run) -> int | None:
    """Logical CPUs that each rank may run on, as Slurm counts them; None where that is not known."""
    found = run.signals.processors if run.signals else None
    return None if found is None or found.of_rank is None else max(1, round(found.of_rank * found.threads))


def _more(runs: int, words: str) -> str:
    """Than the one that is named, in these words; empty where it is the only one."""
    return words.format(count(runs - 1, "more run")) if runs > 1 else ""
