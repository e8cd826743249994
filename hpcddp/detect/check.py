"""`hpcddp clusters check`: a profile beside the live Slurm."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.slurm_rules import GpuRequest
from hpcddp.core.errors import UsageError
from hpcddp.core.text import count, table
from hpcddp.detect.compare_nodes import FieldFinding, compare_nodes, judge_field, nodes_by_type, partitions_of
from hpcddp.detect.compare_rules import compare_own_memory, compare_partitions, compare_qos, compare_settings
from hpcddp.detect.live import READING_S, TIME_LIMIT_S, LiveSlurm, read_live
from hpcddp.detect.node_types import live_node_types
from hpcddp.detect.rules import enforces_accounts, my_accounts, my_partitions
from hpcddp.detect.trial import Names, Trial, TrialVerdict, try_requests

NOT_IN_SLURM = "cpu, gpu, gpu_memory_gb, links, disks, fabric, storage, compute, env"
"""Of a profile, what Slurm knows nothing of."""


COLUMN = 28
"""Characters of a value in the table, which fits 100 columns then."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Every field that was compared, or could not be."""

    findings: tuple[FieldFinding, ...]

    def of(self, verdict: str) -> list[FieldFinding]:
        """Those with that verdict."""
        return [finding for finding in self.findings if finding.verdict == verdict]

    @property
    def has_drift(self) -> bool:
        return bool(self.of("differs"))


def check_cluster(profile: ClusterProfile) -> Comparison:
    """Asks Slurm; UnansweredError where it says nothing."""
    if profile.backend != "slurm":
        raise UsageError(f"{profile.name} has no Slurm to compare with: its backend is `{profile.backend}`")
    start_s = time.monotonic()
    live = read_live(start_s + READING_S)
    return Comparison(findings=(*compare_profile(profile, live), *_tried(profile, live, start_s + TIME_LIMIT_S)))


def compare_profile(profile: ClusterProfile, live: LiveSlurm) -> tuple[FieldFinding, ...]:
    """What Slurm lists; pure."""
    problems = "; ".join(live.problems) or "not in Slurm's answers"
    types = live_node_types(live.nodes or ())
    found = nodes_by_type(profile, live.nodes or ())
    findings = (
        *compare_nodes(profile, live.nodes, problems),
        *compare_partitions(profile, live, types, found),
        *compare_own_memory(profile, live, found),
        *compare_qos(profile, live, types),
        *compare_settings(profile, live, types),
    )
    return tuple(findings)


def _tried(profile: ClusterProfile, live: LiveSlurm, deadline_s: float) -> Iterator[FieldFinding]:
    """How GPUs are requested, and whether an account must be named: what `sbatch --test-only` takes."""
    trial = _trial(profile, live)
    why = "the profile has no default node type"
    own = profile.node_type(None).gpu_request if trial else None
    said = own or profile.slurm.gpu_request
    verdict, names = TrialVerdict(why=why), Names(accounts=my_accounts(live), qos=_qos_to_try(profile))
    if trial is not None:
        others: list[GpuRequest] = ["gres", "gpus-per-node", "gpus-per-task"]
        # a job without GPUs is taken anywhere, so that `none` holds only where no option is taken
        requests = [*others, said] if said == "none" else list(dict.fromkeys([said, *others]))
        verdict = try_requests(trial, requests, names, deadline_s)
        why = f"sbatch --test-only: {verdict.why}"
        yield judge_field("slurm.gpu_request", said, [verdict.gpu_request], why)
    required = False if enforces_accounts(live) is False else verdict.account_required
    memory = [verdict.memory_option] if profile.slurm.memory_option or verdict.memory_option != "free" else []
    if memory:
        yield judge_field("slurm.memory_option", profile.slurm.memory_option, memory, why)
    if profile.slurm.account_required is not None:
        yield judge_field("slurm.account_required", profile.slurm.account_required, [required], why)


def _qos_to_try(profile: ClusterProfile) -> list[str | None]:
    """None where a rule is for jobs that name none."""
    rules = profile.slurm.qos
    ordered = sorted(rules, key=lambda rule: (rule.name is not None, not rule.automatic))
    return list(dict.fromkeys(rule.name for rule in ordered))


def _trial(profile: ClusterProfile, live: LiveSlurm) -> Trial | None:
    """A node of the default type; None where the profile has none."""
    if not profile.node_types or profile.default_node_type is None:
        return None
    kind = profile.node_type(None)
    names = partitions_of(profile, profile.default_node_type)
    usable = [partition.name for partition in my_partitions(live) if partition.name in names]
    partition = usable[0] if usable else next(iter(sorted(names)), None)
    return Trial(partition=partition, constraint=kind.constraint, gres_type=kind.gres_type, gpus=kind.gpus or 1)


def comparison_text(profile: ClusterProfile, comparison: Comparison) -> str:
    """The differences, what the profile lacks, and one line of how much was compared."""
    differs, new = comparison.of("differs"), comparison.of("new")
    agree = len(comparison.of("agrees"))
    parts = []
    if differs:
        parts.append(f"{profile.name} and its Slurm differ in {count(len(differs), 'value')}; {agree} agree\n{_rows(differs)}")
    else:
        parts.append(f"{profile.name} agrees with its Slurm: {count(agree, 'value')} compared")
    if new:
        header = ("field", "Slurm")
        rows = [(finding.field, _shown(finding.slurm)) for finding in new]
        parts.append(f"Reported by Slurm, but not in the profile\n{table(header, rows, left=header)}")
    return "\n\n".join(parts)


def _rows(findings: Sequence[FieldFinding]) -> str:
    header = ("field", "profile", "Slurm")
    rows = [(finding.field, _shown(finding.profile), _shown(finding.slurm)) for finding in findings]
    return table(header, rows, left=header)


def _shown(value: object) -> str:
    """Within a column: lists of nodes may be long, and JSON has them in full."""
    text = str(value)
    return text if len(text) <= COLUMN else f"{text[: COLUMN - 3]}..."


def not_compared(comparison: Comparison) -> list[str]:
    """What Slurm did not say, by reason; what it never knows comes last."""
    groups: dict[str, list[str]] = {}
    for finding in comparison.of("unknown"):
        groups.setdefault(finding.why or "", []).append(finding.field)
    texts = [f"not compared: {', '.join(fields)} ({why})" for why, fields in groups.items()]
    return [*texts, f"not compared, because Slurm does not report them: {NOT_IN_SLURM}"]


def comparison_plain(profile: ClusterProfile, comparison: Comparison) -> dict[str, object]:
    """The same as JSON."""
    return {
        "cluster": profile.name,
        "agree": [finding.field for finding in comparison.of("agrees")],
        "differ": [{"field": f.field, "profile": f.profile, "slurm": f.slurm} for f in comparison.of("differs")],
        "not_in_profile": [{"field": f.field, "slurm": f.slurm} for f in comparison.of("new")],
        "not_compared": [{"field": f.field, "why": f.why} for f in comparison.of("unknown")],
    }
