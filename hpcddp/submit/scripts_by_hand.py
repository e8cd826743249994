"""`hpcddp render`: the scripts of points that the user submits with sbatch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.settings import Settings
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import JobSpec, ScriptPlace
from hpcddp.core.point import Point
from hpcddp.core.schema import encode
from hpcddp.script.render import ScriptLaunch, launch_by_hand, launch_command, render
from hpcddp.submit.choose import ChosenPoints, job_requests, slurm_user
from hpcddp.submit.remarks import without_folder

OF_FABRIC = ("name", "protocol", "adapters_per_node", "gbps_per_node")
OF_NODE_TYPE = ("smt", "physical_cores", "gpus", "gpu", "links", "local_disk_path")


def missing_settings(points: ChosenPoints, settings: Settings) -> Iterator[str]:
    """A sentence for each setting without which the jobs would be refused or fail; UsageError where there is no Slurm."""
    profile = points.profile
    if profile.backend == "local":
        raise UsageError(f"{profile.name} has no Slurm, so no sbatch script; `hpcddp submit` runs it here")
    if slurm_user(points.source, settings).account is None and profile.slurm.account_required:
        yield (
            f"The script names no account, so {profile.name} would refuse the job. Add `--set account=NAME`, or set "
            "SBATCH_ACCOUNT."
        )
    yield from without_folder(points.points, settings.data_roots)


def scripts_by_hand(points: ChosenPoints, settings: Settings) -> dict[str, str]:
    """Label -> script text; its records land in `adhoc/` of the run root."""
    profile, requests = points.profile, job_requests(points, settings)
    chosen, near = [planned.point for planned in points.points], points.source.file.absolute().parent
    if profile.backend == "sagemaker":
        from hpcddp.backends.sagemaker import request_by_hand

        specs = (spec_by_hand(profile, point, settings, near) for point in chosen)
        return {spec.label: request_by_hand(profile, spec, requests[spec.label].walltime_min) for spec in specs}
    return {
        point.label: render(profile, point, requests[point.label], by_hand(profile, point, settings, near)) for point in chosen
    }


def script_of_command(points: ChosenPoints, settings: Settings, words: Sequence[str]) -> str:
    """The script that runs a command of the user's own as every rank of the only point's layout."""
    from hpcddp.script.own_command import check_launcher, in_environment

    (planned,) = points.points
    (request,) = job_requests(points, settings).values()
    check_launcher(words, request)
    run_root = settings.run_root_here()
    launch = launch_command(words, None if run_root is None else str(run_root))
    launch = replace(launch, command=in_environment(words, points.profile.compute.python))
    return render(points.profile, planned.point, replace(request, name=command_name(words)), launch)


def command_name(words: Sequence[str]) -> str:
    """The script's name among the words, or the first of them."""
    script = next((word for word in words if word.endswith(".py")), words[0])
    return Path(script).stem


def by_hand(profile: ClusterProfile, point: Point, settings: Settings, near: Path) -> ScriptLaunch:
    """How a script that the user submits starts the point's ranks; `near`: the sweep's folder."""
    run_root, spec = settings.run_root_here(), spec_by_hand(profile, point, settings, near)
    launch = launch_by_hand(profile, spec, None if run_root is None else str(run_root))
    if profile.backend != "hosts":
        return launch
    from hpcddp.backends.hosts import launch_on_hosts

    return launch_on_hosts(launch, profile, spec)


def spec_by_hand(profile: ClusterProfile, point: Point, settings: Settings, near: Path) -> JobSpec:
    """What such a script carries."""
    script = point.workload.script
    return JobSpec(
        point=point,
        study="$HPCDDP_RUNS/adhoc",
        backend=profile.backend,
        data_root=settings.data_roots.get(point.workload.data.name),
        profile=_facts(profile, point.layout.node_type or profile.default_node_type or ""),
        local_device=profile.slurm.local_device,
        script=ScriptPlace(file=str(near / script), folder=str(near)) if script else None,
    )


def _facts(profile: ClusterProfile, node_type: str) -> dict[str, object]:
    """What worker and analysis read of the profile (core/launch_record.py, whose import takes 6 ms)."""
    kinds = {node_type: _known(profile.node_types[node_type], OF_NODE_TYPE)} if node_type in profile.node_types else {}
    return {
        "fabric": _known(profile.fabric, OF_FABRIC),
        "node_types": kinds,
        "default_node_type": profile.default_node_type,
    }


def _known(facts: object, names: Sequence[str]) -> dict[str, object]:
    plain = {name: encode(getattr(facts, name), keep_defaults=False) for name in names}
    return {name: value for name, value in plain.items() if value not in (None, {})}
