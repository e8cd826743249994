"""A sweep: one YAML file that says what to measure, and the points it comes to."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hpcddp.cluster.profile_names import is_profile_file
from hpcddp.cluster.slurm_rules import Intent
from hpcddp.cluster.yamlfile import located, parse_yaml, read_yaml
from hpcddp.core.errors import UsageError
from hpcddp.core.hours import Budget
from hpcddp.core.point import Layout, Measure, Workload
from hpcddp.core.schema import Count, MissingKeyError, Positive, SchemaError, added_later, decode
from hpcddp.sweep.groups import SweepGroup, read_group

SET_OTHERWISE = re.compile(
    r"(?P<hpcddp>(SLURM|SBATCH|SRUN|HPCDDP|SUBMITIT|PET|TORCHELASTIC)_.*|((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)"
    r"|PATH|PYTHONUNBUFFERED|PYTHONSAFEPATH)|(?P<layout>OMP_NUM_THREADS|(CUDA|ROCR|HIP|GPU)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL)"
    r"|(?P<secret>.*(TOKEN(?!I[ZS])|SECRET|PASSWORD|PASSWD|CREDENTIAL|(API|ACCESS)_?KEY).*)"
)
WHOSE = {
    "hpcddp": "hpcddp or Slurm sets it in each job. Remove it.",
    "layout": "it follows from layout.physical_cores_per_rank and layout.gpus_per_node. Set these.",
    "secret": "records and bundles would contain it. Export it in the shell that submits; jobs inherit its variables.",
}
"""Group of SET_OTHERWISE -> why, and the way."""


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """What jobs ask of Slurm; outside the id. None: the profile's rule, or what the user's settings say."""

    walltime_min: Positive = 30
    """Of a run's job."""
    partition: str | None = None
    """None: the profile's."""
    qos: str | None = None
    """None: that of the profile's first rule that fits, or Slurm's own."""
    intent: Intent | None = added_later(None)
    """What jobs are for, where the profile has a QOS or partition for that. None: production."""
    mem_mb: Positive | None = None
    """Memory on each node. None: all of an exclusive node's, else the share of its cores."""
    reservation: str | None = None
    """None: the user's settings or SBATCH_RESERVATION."""
    nodelist: str | None = None
    """Hosts that a job must have: `gn[01-04]`."""
    exclude: str | None = None
    """Hosts that no job may have."""
    spare_nodes: Count = added_later(0)
    """Nodes beyond those of the largest point: one allocation stays off as many that preflight finds slow."""
    options: tuple[str, ...] = ()
    """Raw sbatch options (`--constraint=hdr`), last in the header."""
    srun_options: tuple[str, ...] = ()
    """Raw srun options that ranks are started with, behind the profile's."""
    template: str | None = None
    """A file beside the sweep or below its folder. None: the profile's."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What to measure, and how often."""

    schema: Literal[1]
    """Version of this format."""
    cluster: str | None = None
    """A profile by name, or its file, relative to the sweep's. None: HPCDDP_CLUSTER, or the one of this machine."""
    hold: Literal["batch_per_gpu", "global_batch"] = "batch_per_gpu"
    """What stays constant as the number of ranks grows."""
    work: Literal["steps", "epoch", "train"] = "steps"
    """What one run does: steps, one epoch, or all epochs of a training."""
    workload: Workload
    """What trains."""
    layout: Layout = Layout()
    """Where it trains."""
    points: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Groups of points by name; each point is measured once."""
    baselines: bool = True
    """Whether points of one GPU and of one node are added where a series has none."""
    measure: Measure = Measure()
    """How a run is timed."""
    repeat: Positive = 1
    """Runs of each point; from six on, medians come with a 95 % interval. Outside the id."""
    train_epochs: Positive | None = None
    """Epochs of a whole training, whose cost results then say. Outside the id."""
    budget: Budget = Budget()
    """Nothing above it is submitted. Outside the id. None: the user's settings."""
    device: Literal["cuda", "cpu"] = "cuda"
    """cpu: a rank wherever a GPU would be."""
    account: str | None = None
    """None: the user's settings or SBATCH_ACCOUNT. Outside the id."""
    slurm: SlurmOptions = SlurmOptions()
    """What jobs ask of Slurm besides nodes and GPUs."""
    env: Mapping[str, str | int | float | None] = added_later(dict)
    """Variables of the ranks, above those of the profile. Each may be an axis: `env.NCCL_ALGO: [null, Ring, Tree]`. null: not
    set. Part of the id."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Of the ranks, those that are set."""
        return {name: str(value) for name, value in self.env.items() if value is not None}


@dataclass(frozen=True)
class SweepOptions:
    """Options of the command line that change points of a sweep; the other options choose among them."""

    settings: tuple[str, ...] = ()
    """`--set`, as given."""
    cluster: str | None = None
    also: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """One more product over every group: `--comm off --comm on` is `{"measure.comm": ["off", "on"]}`."""


@dataclass(frozen=True)
class SweepFile:
    """A sweep with the document and the file it came from: axes are applied to the document, complaints name the file."""

    sweep: Sweep
    document: Mapping[str, object]
    groups: Mapping[str, SweepGroup]
    file: Path
    options: SweepOptions = SweepOptions()

    @property
    def name(self) -> str:
        return self.file.stem


def read_sweep(file: Path, settings: Sequence[str] = (), cluster: str | None = None) -> SweepFile:
    """The sweep in `file` with `--set` values put under its groups; `cluster`, where given, replaces the file's own."""
    document = read_yaml(file)
    if not isinstance(document, dict):
        raise UsageError(f"{file}: a sweep is a mapping with schema, cluster, workload, ...; `hpcddp init` copies one")
    if cluster is not None:
        document["cluster"] = cluster
    elif is_profile_file(document.get("cluster")):
        document["cluster"] = str(file.parent / document["cluster"])
    return dataclasses.replace(make_sweep(document, settings, file), options=SweepOptions(tuple(settings), cluster))


def make_sweep(document: Mapping[str, object], settings: Sequence[str], file: Path) -> SweepFile:
    """The sweep of a document; `file` gives it its name, and errors their place."""
    changed_document = copy.deepcopy(dict(document))
    changed = [_apply_setting(changed_document, text) for text in settings]
    try:
        sweep = decode_sweep(changed_document)
        groups = {name: read_group(name, plain) for name, plain in sweep.points.items()}
        return SweepFile(sweep, changed_document, groups, file)
    except SchemaError as error:
        for path, text in zip(changed, settings, strict=True):
            if error.path[: len(path)] == path:
                raise UsageError(f"--set {text}: {_with_full_key(path, error.message)}") from error
        raise with_line(error, file) from error


def decode_sweep(document: Mapping[str, object]) -> Sweep:
    """The sweep; SchemaError where a key or a value is none of a sweep."""
    if document.get("work") == "comm":
        message = "a sweep cannot have `work: comm`. Time collectives at its layouts with `hpcddp bench comm SWEEP`."
        raise SchemaError(("work",), message)
    _check_variables(document.get("env"))
    sweep = decode(Sweep, document)
    _check_what_trains(sweep.workload)
    return sweep


def _check_variables(env: object) -> None:
    """SchemaError for a name that is none, or hpcddp's, and for a value that is not sure to reach the ranks as it is meant."""
    for key, value in env.items() if isinstance(env, dict) else ():
        if not re.fullmatch(r"[A-Za-z_]\w*", name := str(key), re.ASCII):
            words = f"`{name}` is not a variable name (letters, digits and _)"
        elif found := SET_OTHERWISE.fullmatch(name):
            words = f"a sweep cannot set {name}: {WHOSE[str(found.lastgroup)]}"
        elif isinstance(value, bool):
            words = f"{name} is {str(value).lower()}, but a variable is text. Write it in quotes, as the program reads it."
        elif re.search(r"[\n\r\0]", str(value)):
            words = f"{name} has a line break, which a job script cannot pass on"
        else:
            continue
        raise SchemaError(("env", name), words)


def _check_what_trains(workload: Workload) -> None:
    """A script, or a model and data."""
    of_library = {"model": workload.model, "data": workload.data.name}
    for key, value in of_library.items():
        if not workload.script and not value:
            raise MissingKeyError(key).inside("workload")
        if workload.script and value:
            raise SchemaError(("workload", key), f"`script` is {workload.script}, which has its own {key}. Remove `{key}`.")


def with_line(error: SchemaError, file: Path) -> UsageError:
    """The error with its file and line; as it is where the sweep is in no file."""
    return located(error, file) if file.is_file() else error


def _with_full_key(path: tuple[str, ...], message: str) -> str:
    """The complaint; of a key that is one of a part of the sweep (`batch_per_gpu`) it names the key in full."""
    parts = {"workload": Workload, "layout": Layout, "measure": Measure, "slurm": SlurmOptions, "budget": Budget}
    full = [f"{part}.{path[0]}" for part, kind in parts.items() if path[0] in {field.name for field in dataclasses.fields(kind)}]
    known = {field.name for field in dataclasses.fields(Sweep)}
    return f"not a key of a sweep; did you mean `{'` or `'.join(full)}`?" if full and path[0] not in known else message


def with_job_options(source: SweepFile, options: Sequence[str]) -> SweepFile:
    """The sweep with raw sbatch options behind its own."""
    if not options:
        return source
    document = copy.deepcopy(dict(source.document))
    set_dotted(document, "slurm.options", [*source.sweep.slurm.options, *options])
    changed = make_sweep(document, (), source.file)
    return dataclasses.replace(changed, options=source.options)


def chosen_groups(source: SweepFile, names: Sequence[str]) -> list[SweepGroup]:
    """The groups named, or all, in the file's order; of a sweep without groups one that changes nothing."""
    if not source.groups:
        return [read_group("", {})]
    return [group for name, group in source.groups.items() if not names or name in names]


def without_effect(source: SweepFile, groups: Sequence[str], settings: Sequence[str], flags: Iterable[str]) -> list[str]:
    """A sentence for each `--set` and each key of a flag (`measure.comm`) that the groups override with values of their own."""
    keys = {text.partition("=")[0]: f"--set {text}" for text in settings}
    keys |= {key: f"--{key.rpartition('.')[2]}" for key in flags}
    above = {key: [group.name for group in chosen_groups(source, groups) if key in group.keys] for key in keys}
    return [
        f"{keys[key]} has no effect in {', '.join(names)}: `points` sets {key} there. Change it in `points`."
        for key, names in above.items()
        if names
    ]


def set_dotted(document: dict[str, object], dotted_key: str, value: object) -> None:
    """Sets `workload.batch_per_gpu` in nested dicts, making those on the way."""
    *parents, last = dotted_key.split(".")
    for parent in parents:
        below = document.setdefault(parent, {})
        if not isinstance(below, dict):
            raise UsageError(f"`{dotted_key}`: `{parent}` is {below!r}, not a mapping")
        document = below
    document[last] = value


def _apply_setting(document: dict[str, object], text: str) -> tuple[str, ...]:
    """Applies one `key=value`, the value read as YAML; returns the key's path."""
    key, equals, value = text.partition("=")
    if not equals or key.split(".")[0] in ("points", "schema"):
        raise UsageError(f"--set {text}: give a key of the sweep and a value, such as workload.batch_per_gpu=64")
    set_dotted(document, key, parse_yaml(value, f"--set {text}"))
    return tuple(key.split("."))
