"""Whether Slurm would take each request of a study; its words where it does not, and what to write into the profile then.

The texts are those of slurm_errno.c, which Slurm 22.05 and today's sources have alike, and, for limits of accounting, the reasons
of squeue, which sbatch prints before them.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hpcddp.backends.slurm_commands import UnansweredError
from hpcddp.backends.slurm_test_only import refusal_words, test_only
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.errors import HpcddpError, RefusedError
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Point
from hpcddp.core.text import count
from hpcddp.script.job_request import JobRequest
from hpcddp.script.render import launch_by_hand, render
from hpcddp.submit.one_allocation import allocation_request
from hpcddp.submit.submission_plan import SubmissionPlan


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why Slurm would not take a request."""

    text: str
    """What of it Slurm refuses, Slurm's words and the next step."""
    is_certain: bool
    """False where a job like that may wait in the queue all the same."""


_UNAVAILABLE = "Requested node configuration is not available"
"""Of --test-only also where such nodes are down or drained just now: sbatch itself would queue the job (Slurm 22.05)."""

_FULL = re.compile(r"(QOS|Assoc)(Grp|Max)Submit|MaxJobCount|Resource temporarily unavailable")
"""Too many jobs in the queue: no rule of the cluster for a request."""

_KNOWN: Sequence[tuple[str, str, str]] = (
    (r"Invalid partition name", "has no partition {partition}", "Correct slurm.partition{profile}, or {set_partition}."),
    (
        r"No partition specified or system default",
        "has no default partition",
        "Add slurm.partition{to_profile}, or {set_partition}.",
    ),
    (
        r"group not permitted to use this partition|Required partition not available",
        "accepts no such job in {in_partition}",
        "Correct slurm.partition{profile}, or {set_partition}.",
    ),
    (r"Node count spec|PartitionNodeLimit", "refuses {nodes} in {in_partition}", "Add min_nodes and max_nodes to {its_rule}."),
    (
        r"time limit is invalid|PartitionTimeLimit|Time limit specification required",
        "refuses {minutes} in {in_partition}",
        "Add max_walltime_min to {its_rule}, or use --set slurm.walltime_min=MINUTES.",
    ),
    (
        r"Invalid account",
        "refuses account {account} in {in_partition}",
        "Use --set account=NAME. Write the form of valid accounts into slurm.account_form{profile}.",
    ),
    (
        r"Invalid qos",
        "refuses {qos} in {in_partition} for account {account}",
        "Add the valid QOS to qos of {its_rule}, or use --set slurm.qos=NAME.",
    ),
    (r"QOSMinNode|QOSMin\w*Cpu|QOSMinGRES", "refuses {nodes}, too few for {qos}", "Add min_nodes to {rule}{profile}."),
    (r"QOSMaxNodePerJob", "refuses {nodes}, too many for {qos}", "Add max_nodes to {rule}{profile}."),
    (r"QOSMaxWall", "refuses {minutes}, too long for {qos}", "Add max_walltime_min to {rule}{profile}."),
    (r"QOSMaxCpuPerJob", "refuses {cpus}, too many for {qos}", "Add max_cpus to {rule}{profile}."),
    (r"QOSMaxGRESPerJob", "refuses {gpus}, too many for {qos}", "Add max_gpus to {rule}{profile}."),
    (r"(QOS|Assoc)(Max|Grp)GRES", "refuses {gpus}, too many for one user or account", "Add slurm.max_gpus_per_user{to_profile}."),
    (r"(QOS|Assoc)(Max|Grp)Cpu", "refuses {cpus}, too many for one user or account", "Add slurm.max_cores_per_user{to_profile}."),
    (
        r"Invalid feature",
        "has no nodes with feature {constraint}",
        "Correct {its_nodes}.constraint{profile}; list features with `sinfo -o '%P %f'`.",
    ),
    (
        r"generic resource|[Ii]nvalid gres",
        "provides no GPUs for this request",
        "Correct {its_nodes}.gres_type and slurm.gpu_request{profile}; list GPUs with `sinfo -o '%P %G'`.",
    ),
    (r"unrecognized option", "does not support an option of this request", "Correct slurm.options{profile}, or the sweep's."),
    (
        r"Memory required by task|Memory specification",
        "does not provide that much memory",
        "Correct {its_nodes}.memory_mb or max_mb_per_core{profile}, or use --set slurm.mem_mb=MB.",
    ),
    (
        r"More processors requested|CPU count specification|Task count specification",
        "does not provide that many CPUs",
        "Correct {its_nodes}.physical_cores and smt{profile}.",
    ),
    (r"reservation", "refuses reservation {reservation} for this request", "Use --set slurm.reservation=NAME, or omit it."),
    (
        r"Invalid node name|nodes not in this partition",
        "has no such nodes in {in_partition}",
        "Correct {its_nodes}.names{profile}, or use --set slurm.nodelist=NAMES.",
    ),
    (
        _UNAVAILABLE,
        "cannot provide {nodes} of this kind now",
        "Such nodes may be down or drained: see `sinfo -N`. Or {its_nodes}{profile} states more than they have.",
    ),
)
"""Slurm's words (a regular expression) -> what of the request it refuses, and what to do about it."""

_OTHERWISE = ("refuses this request", "Write the cluster's rule into slurm{profile}.")

_QUEUE_IS_FULL = ("accepts no more of your jobs now", "Submit again when some of them have finished.")


def refusal_of(profile: ClusterProfile, point: Point, request: JobRequest, words: str) -> Refusal:
    """Why Slurm refuses the request of this point, by its own words."""
    known = next(((what, step) for pattern, what, step in _KNOWN if re.search(pattern, words)), _OTHERWISE)
    is_full = bool(_FULL.search(words))
    what, step = _QUEUE_IS_FULL if is_full else known
    values = _values(profile, point, request)
    text = f"Slurm {what.format(**values)} (sbatch: {words}). {step.format(**values)}"
    return Refusal(text=text, is_certain=not is_full and _UNAVAILABLE not in words)


def explained(profile: ClusterProfile, point: Point, request: JobRequest, error: RefusedError) -> RefusedError:
    """The error of a submission, whose words are `NAME: sbatch's own`, with what of the request it is about and the next step."""
    words = refusal_words(str(error).partition(": ")[2])
    return type(error)(refusal_of(profile, point, request, words).text)


def _values(profile: ClusterProfile, point: Point, request: JobRequest) -> Mapping[str, str]:
    gpus = request.nodes * request.gpus_per_node
    cpus = request.nodes * request.tasks_per_node * (request.cpus_per_task or 1)
    return {
        "partition": request.partition or "of its own",
        "set_partition": "use --set slurm.partition=NAME",
        "its_rule": f"slurm.partitions.{request.partition or 'NAME'} of the profile of {profile.name}",
        "in_partition": f"partition {request.partition}" if request.partition else "Slurm's default partition",
        "nodes": count(request.nodes, "node"),
        "gpus": count(gpus, "GPU"),
        "cpus": count(cpus, "CPU"),
        "minutes": count(request.walltime_min, "minute"),
        "account": request.user.account or "(none)",
        "qos": f"QOS {request.qos}" if request.qos else "a job without a QOS",
        "rule": f"the rule {request.qos} of slurm.qos" if request.qos else "the rule without a name of slurm.qos",
        "constraint": request.constraint or "(none)",
        "reservation": request.user.reservation or "(none)",
        "its_nodes": f"node_types.{point.layout.node_type or profile.default_node_type}",
        "profile": f" of the profile of {profile.name}",
        "to_profile": f" to the profile of {profile.name}",
    }


NAMED = 2
"""Points by name in a sentence; others are counted."""

PATIENCE_S = 30.0
"""For all requests together: a user waits for the answer."""


@dataclass(frozen=True, kw_only=True)
class RequestCheck:
    """What Slurm said of the requests of a study."""

    refused: Mapping[Refusal, Sequence[Point]] = field(default_factory=dict)
    """Why -> the points that it holds for."""
    remark: str | None = None
    """Why it has not judged all of them."""

    @property
    def certain(self) -> list[str]:
        """A sentence for each reason that sbatch would have, too."""
        return [_sentence(refusal, points) for refusal, points in self.refused.items() if refusal.is_certain]

    @property
    def uncertain(self) -> list[str]:
        """A sentence for each reason that may leave a job waiting in the queue."""
        return [_sentence(refusal, points) for refusal, points in self.refused.items() if not refusal.is_certain]


def _sentence(refusal: Refusal, points: Sequence[Point]) -> str:
    named = ", ".join(point.label for point in points[:NAMED])
    more = f" and {count(len(points) - NAMED, 'more point')}" if len(points) > NAMED else ""
    return f"{named}{more}: {refusal.text}"


def check_requests(plan: SubmissionPlan, runs: Sequence[tuple[Point, int]]) -> RequestCheck:
    """Has sbatch judge each distinct request of these runs, no faster than the profile allows; ends after PATIENCE_S at most."""
    deadline, refused = time.monotonic() + PATIENCE_S, dict[Refusal, list[Point]]()
    distinct = list(_distinct_requests(plan, runs))
    for done, (request, points) in enumerate(distinct):
        if done and not _pause(plan, deadline):
            return RequestCheck(refused=refused, remark=_remark(done, distinct, f"that took {PATIENCE_S:g} s"))
        try:
            # as `hpcddp render` prints it: what Slurm judges is its header
            launch = launch_by_hand(plan.profile, JobSpec(point=points[0], study="$HPCDDP_RUNS/adhoc"), None)
            words = test_only(render(plan.profile, points[0], request, launch), deadline - time.monotonic())
        except UnansweredError as error:
            return RequestCheck(refused=refused, remark=_remark(done, distinct, str(error)))
        except HpcddpError as error:
            return RequestCheck(remark=_remark(done, distinct, str(error)))
        if words is not None:
            refused.setdefault(refusal_of(plan.profile, points[0], request, words), []).extend(points)
    return RequestCheck(refused=refused)


def _distinct_requests(plan: SubmissionPlan, runs: Sequence[tuple[Point, int]]) -> Iterator[tuple[JobRequest, list[Point]]]:
    """With the points that make each, in the order of the first of them; one for all where they are steps of one job."""
    points = list({point.label: point for point, _ in runs}.values())
    if plan.options.one_allocation and runs:
        yield allocation_request(plan, runs), points
        return
    groups: dict[JobRequest, list[Point]] = {}
    for point in points:
        groups.setdefault(dataclasses.replace(plan.requests[point.label], name="", env=()), []).append(point)
    for of_group in groups.values():
        yield plan.requests[of_group[0].label], of_group


def _pause(plan: SubmissionPlan, deadline: float) -> bool:
    """Waits as long as the profile wants between two calls of sbatch; False where no second would be left for an answer."""
    rate = plan.profile.slurm.submissions_per_s
    pause_s = 1 / rate if rate else 0.0
    if time.monotonic() + pause_s + 1 > deadline:
        return False
    time.sleep(pause_s)
    return True


def _remark(done: int, distinct: Sequence[object], why: str) -> str:
    if not done:
        return f"not checked with Slurm: {why}"
    return f"{count(len(distinct) - done, 'request')} of {len(distinct)} not checked with Slurm: {why}"
