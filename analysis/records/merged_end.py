"""One end.json for a run that several attempts made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcddp.analysis.records.attempts import AttemptRecords
from hpcddp.analysis.records.merged_loader import pooled
from hpcddp.analysis.records.merged_telemetry import merged_nodes
from hpcddp.core.attempt_records import GateResult, TrainingEnd
from hpcddp.core.telemetry_record import NodeTelemetry, Telemetry


def merged_end(attempts: Sequence[AttemptRecords], end: TrainingEnd) -> TrainingEnd:
    """end.json of the attempt that ended the run, with what the others know too: their gates that failed, memory, telemetry.

    Energy per sample is the mean over attempts, weighted by their steady steps; memory is the largest; readings of nodes are
    as merged_telemetry.py has them. The first loss is that of the run's first step, where it is known.
    """
    if [each.end for each in attempts] == [end]:
        return end
    ended = [(each, each.end) for each in attempts if each.end is not None]
    others = [(each, its_end) for each, its_end in ended if its_end is not end]
    failed = [_of_attempt(each, gate) for each, its_end in others for gate in its_end.gates if not gate.passed]
    first = attempts[0]
    return replace(
        end,
        gates=(*end.gates, *failed),
        ranks=tuple(entry for _, its_end in ended for entry in its_end.ranks),
        loader=pooled(its_end.loader for _, its_end in ended),
        telemetry=Telemetry(energy_j_per_1000_samples=_energy(attempts), nodes=_nodes([its_end for _, its_end in ended])),
        loss_first=first.end.loss_first if first.end and first.steps.step[:1].tolist() == [0] else None,
    )


def _of_attempt(attempt: AttemptRecords, gate: GateResult) -> GateResult:
    return replace(gate, evidence=f"attempt {attempt.folder.name}: {gate.evidence}")


def _energy(attempts: Sequence[AttemptRecords]) -> float | None:
    weighted = [
        (each.end.telemetry.energy_j_per_1000_samples, int(each.steps.steady.sum()))
        for each in attempts
        if each.end is not None and each.end.telemetry is not None
    ]
    known = [(joules, weight) for joules, weight in weighted if joules is not None]
    steps = sum(weight for _, weight in known)
    return sum(joules * weight for joules, weight in known) / steps if steps else None


def _nodes(ends: Sequence[TrainingEnd]) -> tuple[NodeTelemetry, ...]:
    return merged_nodes([node for end in ends if end.telemetry for node in end.telemetry.nodes])
