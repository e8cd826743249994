"""What several attempts say of the run they made, as if one had made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpcddp.analysis.records.attempts import Part, Plain

SHARES = ("cpu_busy_share", "cpu_job_share", "cpu_foreign_share")


def whole_end(parts: Sequence[Part], end: Plain) -> Plain:
    """end.json of the attempt that ended the run, but what the others know too: their gates that failed, memory, telemetry.

    Energy per sample is the mean over attempts, weighted by their steady steps; memory, and of each node the shares of its CPU
    time, are the largest. The first loss is that of the run's first step, where it is known.
    """
    ended = [part for part in parts if part.ended]
    if [part.end for part in parts] == [end]:
        return end
    others = [part for part in ended if part.end is not end]
    failed = [_of_attempt(part, gate) for part in others for gate in part.end["gates"] if not gate["passed"]]
    first = parts[0]
    return {
        **end,
        "gates": [*end["gates"], *failed],
        "ranks": [entry for part in ended for entry in part.end["ranks"]],
        "telemetry": {"energy_j_per_1000_samples": _energy(ended), "nodes": _nodes(ended)},
        "loss_first": first.end.get("loss_first") if first.steps.step[:1].tolist() == [0] else None,
    }


def _of_attempt(part: Part, gate: Plain) -> Plain:
    return {**gate, "evidence": f"attempt {part.attempt.name}: {gate['evidence']}"}


def _energy(parts: Sequence[Part]) -> float | None:
    told = [(_telemetry(part).get("energy_j_per_1000_samples"), int(part.steps.steady.sum())) for part in parts]
    known = [(joules, weight) for joules, weight in told if joules is not None]
    steps = sum(weight for _, weight in known)
    return sum(joules * weight for joules, weight in known) / steps if steps else None


def _nodes(parts: Sequence[Part]) -> list[Plain]:
    by_host: dict[str, Plain] = {}
    for node in (node for part in parts for node in _telemetry(part).get("nodes") or []):
        known = by_host.setdefault(str(node.get("host")), {"host": node.get("host")})
        for share in SHARES:
            known[share] = max((each[share] for each in (known, node) if each.get(share) is not None), default=None)
    return list(by_host.values())


def _telemetry(part: Part) -> dict[str, Any]:
    return part.end.get("telemetry") or {}
