"""The parameters of an executor in hpcddp's words, and the job that they ask for: checked as a sweep's are."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import site
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.settings import Settings
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Layout
from hpcddp.core.schema import did_you_mean
from hpcddp.script.resources import threads_per_core
from hpcddp.submit.choose import command_layout, pick_cluster
from hpcddp.submit.options import LayoutOptions, PointOptions
from hpcddp.submit.submission_plan import SubmissionPlan, plan_submission
from hpcddp.sweep.file import SlurmOptions

KEYS: Mapping[str, str] = {
    **{field.name: f"layout.{field.name}" for field in dataclasses.fields(Layout) if field.name != "launcher"},
    **{field.name: f"slurm.{field.name}" for field in dataclasses.fields(SlurmOptions) if field.name != "template"},
    "account": "account",
    "device": "device",
}
"""By parameter: the key of a sweep that says the same."""

OF_TASKS = ("tasks_per_node", "cpus_per_task")
"""submitit's parameters that a layout says in GPUs and physical cores."""

OWN = ("name", "array_parallelism")
"""Parameters that are not about what a job asks for."""

NAMES = (*KEYS, *OF_TASKS, *OWN)

INSTEAD = {
    "stderr_to_stdout": "omit it: each task writes errors to a log of its own",
    "launcher": "omit it: srun starts the tasks",
    "time": "set walltime_min",
    "setup": "write modules and shell lines into `compute` of the profile",
    "srun_args": "set srun_options",
    "additional_parameters": "set options, such as ['--constraint=hdr']",
}
"""submitit's parameters that say something else here, and what to do."""


def function_plan(cluster: str | None, parameters: Mapping[str, object], settings: Settings) -> SubmissionPlan:
    """The job that the parameters ask for on that cluster; UsageError for what is no parameter, or what it would refuse."""
    for name in parameters:
        if name in INSTEAD or name not in NAMES:
            step = f": {INSTEAD[name]}" if name in INSTEAD else did_you_mean(name, NAMES)
            raise UsageError(f"no parameter `{name}`{step}")
    given = {name: value for name, value in parameters.items() if name in (*KEYS, *OF_TASKS) and value is not None}
    given = _in_layout(given, pick_cluster(cluster))
    sets = tuple(f"{KEYS[name]}={json.dumps(value)}" for name, value in given.items() if name not in ("nodes", "gpus_per_node"))
    layout = LayoutOptions(**{name: given[name] for name in ("nodes", "gpus_per_node") if name in given})  # type: ignore[arg-type]
    try:
        return plan_submission(command_layout(layout, PointOptions(cluster=cluster, settings=sets)), settings)
    except UsageError as error:
        raise UsageError(in_parameters(str(error))) from error


def _in_layout(given: Mapping[str, object], profile: ClusterProfile) -> dict[str, object]:
    """The same without OF_TASKS: a task has one GPU, and a physical core the CPUs that Slurm counts of it."""
    tasks, cpus = (_count(name, given.get(name)) for name in OF_TASKS)
    found = {name: value for name, value in given.items() if name not in OF_TASKS}
    if tasks is not None and found.setdefault("gpus_per_node", tasks) != tasks:
        raise UsageError(
            f"tasks_per_node is {tasks} and gpus_per_node is {found['gpus_per_node']}, but there is one task per GPU: set both "
            "to the same number"
        )
    if cpus is not None:
        node_type = found.get("node_type")
        threads = threads_per_core(profile, profile.node_type(None if node_type is None else str(node_type)))
        found.setdefault("physical_cores_per_rank", math.ceil(cpus / threads))
    return found


def _count(name: str, value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or value < 1):
        raise UsageError(f"{name} is {value}: set a whole number from 1 up")
    return value


def in_parameters(text: str) -> str:
    """The text with keys of a sweep and options of the command line as parameters of an executor."""
    text = re.sub(r"--set (?:slurm\.|layout\.)?(\w+)=", r"\1=", text).replace("--runs", "folder=")
    return re.sub(r"\b(?:slurm|layout)\.(\w+)(?= is )", r"\1", text)


INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed packages, which a compute environment has of its own."""


def own_modules() -> list[str]:
    """Top-level names, sorted, the script's own among them; of a package that is loaded in part, all of it travels."""
    environment = [Path(path).resolve() for path in (*sysconfig.get_paths().values(), site.getusersitepackages())]
    names = set[str]()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        top = Path(file).stem if name == "__main__" and file else name.partition(".")[0]
        if file and file.endswith(".py") and top not in names and not top.startswith("__") and _is_own(Path(file), environment):
            names.add(top)
    return sorted(name for name in names if _is_found(name))


def search_path() -> list[Path]:
    """Where Python looks for modules, in its order."""
    return [Path(entry or ".").absolute() for entry in sys.path]


def _is_own(file: Path, environment: list[Path]) -> bool:
    folders = file.resolve().parents
    return not any(folder.name in INSTALLED for folder in folders) and not any(folder in folders for folder in environment)


def _is_found(name: str) -> bool:
    """Whether a process that imports it by this name would find it, too: not so where sys.path has changed since."""
    return any(finder.find_spec(name, None) is not None for finder in sys.meta_path if hasattr(finder, "find_spec"))
