"""What the runs' own gates and telemetry say against them: ranks apart, wrong evaluation, throttled clocks, shared nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hpcddp.analysis.runs.run import Run, by_reason
from hpcddp.analysis.util.wording import as_sentences, more_runs, percent
from hpcddp.analysis.verdicts import context
from hpcddp.analysis.verdicts.context import AGAIN, DOUBTFUL, HOSTS, WRONG, Advice, Case, Set, Verdict, phrase
from hpcddp.core.attempt_records import DamagedFiles
from hpcddp.core.text import count, natural, thousands

UNSYNCHRONISED = {
    "ranks see the same data": "Make every rank list the same files in one order. Sort the listing, and check each node's copy.",
    "parameters agree": "Call the model through DDP only, and freeze or exclude the same parameters on every rank.",
    "buffers agree": "Change buffers in forward() only, and keep DDP's broadcast_buffers on.",
    "ranks compute the same": "Use the same value on every rank, host and environment, or make it a buffer.",
    "ranks stepped equally": "Give every rank the same number of batches: a factory's data set must be as long on all ranks.",
    "ranks agree": "Repeat the run. If its ranks disagree again, send comm.json to the site.",
}
"""Gate -> what to do."""

OF_SHARDS = "Give the optimizer the model's parameters after sharding, and freeze the same parameters on every rank."
"""The same of parameters that are sharded."""

EVALUATION = "evaluation counts every sample once"
CLOCKS = "GPU clocks held"
NODES = "nodes as asked for"

FOREIGN = 0.05
"""Share of a node's CPU time that others may use: several cores of a large node; daemons take one at most."""


def done_for_nothing(runs: Sequence[Run]) -> list[Run]:
    """The runs that are done where every one was rejected; none where any counts."""
    done = [run for run in runs if run.state != "missing"]
    return [] if any(run.state == "counts" for run in done) else done


def nothing_counts(case: Case) -> Iterator[Verdict]:
    """Every run that is done was rejected, for any reason: there is no number at all."""
    done = done_for_nothing(case.records.runs)
    if not done:
        return
    reason, runs = max(by_reason(done).items(), key=lambda each: len(each[1]))
    most = f", {len(runs)} of {len(done)} for one reason" if len(runs) < len(done) else ""
    yield Verdict(
        where=f"in {count(len(done), 'run')}",
        evidence=f"Every run was rejected{most}. {as_sentences(f'{reason} ({runs[0].name})')}",
        todo=f"Fix the cause that the reason names. {AGAIN}",
        numbers={"runs": len(runs), "of": len(done)},
        runs=context.run_names(runs),
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
    advice = "Do not quote these runs' accuracy. Pass the whole evaluation split in one order, without a custom sampler."
    yield from _of_gate(case, EVALUATION, advice, WRONG)


def clock_throttling(case: Case) -> Iterator[Verdict]:
    """GPUs ran slower than they can, for heat, power supply or hardware."""
    hot = [(run.signals, re.findall(r"[\w.-]+", _evidence(run, CLOCKS) or "")) for run in case.records.runs if run.signals]
    hosts = {host for signals, words in hot if signals.slurm for host in signals.hosts if host in words}
    exclude = phrase(" Exclude the node with ", Set({HOSTS: ",".join(sorted(hosts, key=natural))}), ".") if hosts else ""
    advice = phrase("Ask the site to check that GPU's cooling and power.", exclude)
    yield from _of_gate(case, CLOCKS, advice, DOUBTFUL)


def _of_gate(case: Case, gate: str, advice: Advice, weight: float) -> Iterator[Verdict]:
    found = [run for run in case.records.runs if _evidence(run, gate)]
    if found:
        judged = len([run for run in case.records.runs if run.state != "missing"])
        yield Verdict(
            where=f"in {len(found)} of {judged} runs",
            evidence=f"{as_sentences(f'{_evidence(found[0], gate)} ({found[0].name})')} These runs are rejected.",
            todo=phrase(advice, f" {AGAIN}"),
            numbers={"runs": len(found), "of": judged},
            runs=context.run_names(found),
            weight=weight + 0.99 * len(found) / judged,
        )


def _evidence(run: Run, gate: str) -> str | None:
    """What the gate says against the run; None if it passed."""
    return run.signals.failed.get(gate) if run.signals else None


def shared_node(case: Case) -> Iterator[Verdict]:
    """Others computed on a node during the timed steps, or the job got a part of a node that it requested exclusively."""
    yield from _of_gate(case, NODES, "Ask the site why jobs do not get whole nodes.", DOUBTFUL)
    runs = [run for run in case.counting if disturbed_by_others(run)]
    if not runs:
        return
    worst = max(runs, key=_foreign)
    share, host = _foreign(worst)
    yield Verdict(
        where=f"in {len(runs)} of {len(case.counting)} runs",
        evidence=f"Processes outside the job used up to {percent(share)} of the CPU time of node {host} during the timed steps "
        f"({worst.name}).",
        todo=_share_advice(worst, host),
        numbers={"foreign_share": share, "runs": len(runs), "of": len(case.counting)},
        runs=context.run_names(runs),
        weight=DOUBTFUL + min(0.99, share),
    )


def _share_advice(run: Run, host: str) -> Advice:
    if not context.by_slurm(run):
        return f"Stop all other work on {host}. {AGAIN}"
    if run.point and not run.point.layout.exclusive:
        return phrase("Request whole nodes with ", Set({"layout.exclusive": True}), ".")
    return phrase(f"Ask the site what runs on {host}, and exclude the node with ", Set({HOSTS: host}), f". {AGAIN}")


def disturbed_by_others(run: Run) -> bool:
    """Whether others computed on a node in the timed steps."""
    return _foreign(run)[0] > FOREIGN


def _foreign(run: Run) -> tuple[float, str]:
    """Others' share of the CPU time of the host where it is largest; 0 where it is not known."""
    known = run.signals.foreign if run.signals else {}
    return max(((share, host) for host, share in known.items() if share is not None), default=(0.0, ""))


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
            evidence=f"{_words(run, split, files)} Other images of the batch replaced them.",
            todo=f"Copy the damaged files again (end.json names the first). {AGAIN}",
            numbers={"damaged": files.pictures, "read": files.read, "share": _share(files)},
            runs=context.run_names(runs),
            weight=DOUBTFUL + min(0.99, _share(files)),
        )


def damaged_notes(runs: Sequence[Run]) -> Iterator[str]:
    """One note on the run with the most damaged pictures where they are too few for a verdict."""
    few = [each for each in _found(runs) if _share(each[2]) < DAMAGED_SHARE]
    if few:
        run, split, files = max(few, key=lambda each: (each[2].pictures, each[0].name))
        more = more_runs(len({each[0].key for each in few}), " {} read damaged images, too.")
        yield f"{_words(run, split, files)} The next image of the batch replaced each.{more}"


def _found(runs: Sequence[Run]) -> list[Found]:
    return [(run, split, files) for run in runs for split, files in sorted(run.damaged.items()) if files.pictures]


def _share(files: DamagedFiles) -> float:
    return files.pictures / max(1, files.read)


def _words(run: Run, split: str, files: DamagedFiles) -> str:
    first = f", the first {files.first[0]}" if files.first else ""
    of = f"{thousands(files.pictures)} of {count(files.read, f'{split} image')} that {run.name} read"
    share = percent(_share(files)) if _share(files) >= 0.01 else f"{100 * _share(files):.1g} %"
    return f"{of} {'is' if files.pictures == 1 else 'are'} damaged ({share}{first})."
