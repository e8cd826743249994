"""What the runs' own gates and telemetry say against them: ranks apart, wrong evaluation, throttled clocks, shared nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcddp.analysis.runs.run import Run, by_reason
from hpcddp.analysis.util.wording import percent
from hpcddp.analysis.verdicts.context import AGAIN, DOUBTFUL, WRONG, Case, Verdict, run_names
from hpcddp.analysis.verdicts.settings import HOSTS, Advice, Set, phrase
from hpcddp.core.text import count, natural

UNSYNCHRONISED = {
    "ranks see the same data": "make every rank list the same files in one order: sort the listing, and check each node's copy",
    "parameters agree": "call the model through DDP only, and freeze or leave out the same parameters on every rank",
    "buffers agree": "buffers may change in forward() only, and DDP's broadcast_buffers must stay on",
    "ranks compute the same": "set alike what differs by rank, host or environment, or make it a buffer",
    "ranks stepped equally": "give every rank as many batches: a factory's data set must be as long on each of them",
    "ranks agree": "see whether it repeats; if it does, show the site comm.json",
}
"""Gate -> what to do."""

OF_SHARDS = "give the optimizer the model's parameters after they are sharded, and freeze the same ones on every rank"
"""The same of parameters that are sharded."""

EVALUATION = "evaluation counts every sample once"
CLOCKS = "GPU clocks held"
NODES = "nodes as asked for"

FOREIGN = 0.05
"""Share of a node's CPU time that others may use: several cores of a large node; monitoring and file system daemons take one at
most."""


def nothing_counts(case: Case) -> Iterator[Verdict]:
    """Every run that is done was rejected, for any reason: there is no number at all."""
    done = [run for run in case.records.runs if run.state != "missing"]
    if not done or any(run.state == "counts" for run in done):
        return
    reason, runs = max(by_reason(done).items(), key=lambda each: len(each[1]))
    most = f", {len(runs)} of them for one reason" if len(runs) < len(done) else ""
    yield Verdict(
        where=f"in {count(len(done), 'run')}",
        evidence=f"all are rejected{most}: {reason} ({runs[0].name})",
        todo=f"change what the reason names; then {AGAIN}",
        numbers={"runs": len(runs), "of": len(done)},
        runs=run_names(runs),
        weight=WRONG + 1,
    )


def unsynchronised(case: Case) -> Iterator[Verdict]:
    """Ranks trained different models, or different numbers of steps."""
    for gate, advice in UNSYNCHRONISED.items():
        shown = next((run for run in case.records.runs if _evidence(run, gate)), None)
        sharded = gate == "parameters agree" and shown is not None and shown.point is not None and shown.point.sharded
        yield from _of_gate(case, gate, OF_SHARDS if sharded else advice, WRONG)


def wrong_evaluation(case: Case) -> Iterator[Verdict]:
    """Accuracy is not that of the evaluation set."""
    advice = "quote no accuracy of these runs; hand over the whole evaluation split in one order, without a sampler of your own"
    yield from _of_gate(case, EVALUATION, advice, WRONG)


def clock_throttling(case: Case) -> Iterator[Verdict]:
    """GPUs ran slower than they can, for heat, power supply or hardware."""
    hot = [(run.signals, evidence) for run in case.records.runs if run.signals and (evidence := _evidence(run, CLOCKS))]
    hosts = {
        host for signals, evidence in hot if signals.slurm for host in signals.hosts if host in re.findall(r"[\w.-]+", evidence)
    }
    leave_out = phrase(", and leave the node out, ", Set({HOSTS: ",".join(sorted(hosts, key=natural))})) if hosts else ""
    advice = phrase("ask the site to check that GPU's cooling and power", leave_out)
    yield from _of_gate(case, CLOCKS, advice, DOUBTFUL)


def _of_gate(case: Case, gate: str, advice: Advice, weight: float) -> Iterator[Verdict]:
    found = [run for run in case.records.runs if _evidence(run, gate)]
    if found:
        judged = len([run for run in case.records.runs if run.state != "missing"])
        yield Verdict(
            where=f"in {len(found)} of {judged} runs",
            evidence=f"{_evidence(found[0], gate)} ({found[0].name}); these runs do not count",
            todo=phrase(advice, f"; then {AGAIN}"),
            numbers={"runs": len(found), "of": judged},
            runs=run_names(found),
            weight=weight + 0.99 * len(found) / judged,
        )


def _evidence(run: Run, gate: str) -> str | None:
    """What the gate says against the run; None if it passed."""
    return run.signals.failed.get(gate) if run.signals else None


def shared_node(case: Case) -> Iterator[Verdict]:
    """Others computed on a node during the timed steps, or the job got a part of a node that it requested exclusively."""
    yield from _of_gate(case, NODES, "ask the site why jobs do not get whole nodes", DOUBTFUL)
    runs = [run for run in case.counting if disturbed(run)]
    if not runs:
        return
    worst = max(runs, key=_foreign)
    share, host = _foreign(worst)
    yield Verdict(
        where=f"in {len(runs)} of {len(case.counting)} runs",
        evidence=f"others took up to {percent(share)} of a node's CPU time in the timed steps ({host}, {worst.name})",
        todo=_share_advice(worst, host),
        numbers={"foreign_share": share, "runs": len(runs), "of": len(case.counting)},
        runs=run_names(runs),
        weight=DOUBTFUL + min(0.99, share),
    )


def _share_advice(run: Run, host: str) -> Advice:
    if run.signals is None or not run.signals.slurm:
        return f"end what else runs on {host}, then {AGAIN}"
    if run.point and not run.point.layout.exclusive:
        return phrase("ask for whole nodes: ", Set({"layout.exclusive": True}))
    return phrase("ask the site what runs there, and leave the node out, ", Set({HOSTS: host}), f"; then {AGAIN}")


def disturbed(run: Run) -> bool:
    """Whether others computed on a node in the timed steps."""
    return _foreign(run)[0] > FOREIGN


def _foreign(run: Run) -> tuple[float, str]:
    """Others' share of the CPU time of the host where it is largest; 0 where it is not known."""
    known = run.signals.foreign if run.signals else {}
    return max(((share, host) for host, share in known.items() if share is not None), default=(0.0, ""))
