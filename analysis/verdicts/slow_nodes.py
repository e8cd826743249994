"""Slow nodes: runs on a node that preflight had named before they began."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcddp.analysis.records.preflights import latest_on
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.verdicts.context import AGAIN, LIMITED, Case, Verdict, run_names
from hpcddp.analysis.verdicts.settings import HOSTS, Set, phrase
from hpcddp.analysis.verdicts.straggler import straggler_hosts
from hpcddp.core.preflight_judgement import below_words
from hpcddp.core.preflight_record import SlowReading
from hpcddp.core.text import count, natural


def slow_nodes(case: Case) -> Iterator[Verdict]:
    """A verdict for each such node. One that the steps themselves show to be slow is a straggler, and that is said already."""
    known, found = straggler_hosts(case), dict[str, list[Run]]()
    for run in case.counting:
        for host in run.signals.hosts if run.signals else ():
            if host not in known and named_slow(case, run, host):
                found.setdefault(host, []).append(run)
    yield from (_verdict(case, host, runs) for host, runs in sorted(found.items(), key=lambda each: natural(each[0])))


def named_slow(case: Case, run: Run, host: str) -> list[SlowReading]:
    """In what preflight had found the host slow when the run began."""
    began = run.signals.began_unix_ns if run.signals else None
    record = latest_on(host, case.records.preflights, began)
    return [slow for slow in record.slow if slow.host == host] if record else []


def _verdict(case: Case, host: str, runs: Sequence[Run]) -> Verdict:
    slow = named_slow(case, runs[0], host)
    by_slurm = any(run.signals and run.signals.slurm for run in runs)
    leave_out = (
        phrase("leave it out, ", Set({HOSTS: host}), ", or have a spare node in one allocation, ", Set({"slurm.spare_nodes": 1}))
        if by_slurm
        else f"leave {host} out"
    )
    return Verdict(
        where=f"on {host}",
        evidence=f"preflight found its {' and its '.join(map(below_words, slow))} of {count(slow[0].nodes, 'node')}, and "
        f"{count(len(runs), 'run')} that {'counts' if len(runs) == 1 else 'count'} ran there ({runs[0].name}"
        f"{' and others' if len(runs) > 1 else ''})",
        todo=phrase(leave_out, f"; then {AGAIN}"),
        numbers={"below": slow[0].below, "runs": len(runs)},
        runs=run_names(runs),
        weight=LIMITED,
    )
