"""A point: everything that can change a number, in the sweep file's words, with an id that is a hash of that content."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from hpcddp.core.errors import UsageError
from hpcddp.core.schema import Count, NonNegative, Positive, added_later, decode, encode

LIBRARY, LIBRARY_MODULE = "pytorch-optimizer", "pytorch_optimizer"
"""Has what torch has not."""

FROM_LIBRARY = ("lars", "lamb")


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """The optimizer, its learning rate, and what else belongs to a recipe. Nothing is scaled, warmed up or left out unasked."""

    lr: NonNegative = 0.01
    """Learning rate."""
    momentum: NonNegative = 0.9
    """Of SGD and LARS; 0: none."""
    weight_decay: NonNegative = 0.0
    """L2 penalty; of AdamW and LAMB behind the moments."""
    name: Literal["sgd", "adamw", "lars", "lamb"] = added_later("sgd")
    """lars and lamb need pytorch-optimizer, whose LARS neither adapts nor decays parameters of one dimension."""
    nesterov: bool = added_later(False)
    """SGD and LARS only."""
    betas: tuple[NonNegative, ...] = added_later((0.9, 0.999))
    """AdamW and LAMB only."""
    eps: NonNegative | None = added_later(None)
    """None: 1e-8 for AdamW, 1e-6 for LAMB."""
    weight_decay_on: Literal["all", "weights"] = added_later("all")
    """weights: parameters of one dimension (biases, normalization) are not decayed."""
    scaling: Literal["none", "linear", "sqrt"] = added_later("none")
    """How `lr` follows the global batch: not, times batch / base_batch, or times the root of that."""
    base_batch: Positive | None = added_later(None)
    """`scaling` only, which needs it: the batch that `lr` is for."""
    warmup_epochs: NonNegative = added_later(0.0)
    """`work: train` only: the rate grows linearly from 0, step by step."""
    schedule: Literal["constant", "step", "cosine", "polynomial"] = added_later("constant")
    """`work: train` only. step: times decay_factor at each of decay_at_epochs. cosine, polynomial: to 0 at the end of
    `measure.epochs`."""
    decay_at_epochs: tuple[Positive, ...] = added_later(())
    """`schedule: step` only, such as [30, 60, 80]."""
    decay_factor: NonNegative = added_later(0.1)
    """`schedule: step` only."""
    power: NonNegative = added_later(2.0)
    """`schedule: polynomial` only: the rate is (share of steps left) to this power."""
    batch_at_epochs: tuple[Positive, ...] = added_later(())
    """`work: train` only: after so many epochs, such as [30, 60, 80], the batch per GPU is batch_factor times as large (arXiv
    1711.00489); with `scaling` the rate too."""
    batch_factor: Positive = added_later(2)
    """`batch_at_epochs` only."""
    label_smoothing: NonNegative = added_later(0.0)
    """Share of the target that all classes get alike while training."""
    ema_decay: NonNegative = added_later(0.0)
    """`work: train` only: a moving average of the parameters is evaluated, which a step moves by 1 - ema_decay of the way, or by
    9 / (10 + n) after n steps if that is more. 0: none."""

    @property
    def numbers_per_parameter(self) -> int:
        """What is held beside a parameter and its gradient from step to step."""
        moments = 2 if self.name in ("adamw", "lamb") else int(self.momentum > 0)
        return moments + (self.ema_decay > 0)


ByHand = Literal["gather_scatter", "all_reduce"]
"""Ways of `parallel` in which gradients travel by hand, parameter by parameter, when backward is over."""

Sharded = Literal["fsdp", "hsdp"]
"""Ways of `parallel` in which each rank holds a part of the parameters."""

VARIANTS = ("plain", "rotated", "translated", "scaled", "flipped", "elastic")
"""The six variants of bigMNIST, in the order of seed 004's augmentations."""


OF_SCRIPT = ("workload.script", "workload.args.", "workload.samples_per_step")
"""Keys, or beginnings of keys, of a sweep whose loop is the user's script."""

FOUND_IN_SCRIPT = (
    *("workload.model", "workload.data.name", "workload.precision", "workload.batch_per_gpu"),
    *("workload.accumulate", "workload.loader_workers_per_rank", "workload.parallel"),
)
"""What the job of such a point finds out of its workload."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """What is trained on: a known name, or `package.module:factory` called with (root, split)."""

    name: str
    """A known data set, or `package.module:factory`."""
    root: str | None = None
    """Folder of the prepared data; variables in it are expanded in the job. Outside the id."""
    copies: Positive = 200
    """bigmnist only: copies of the variants (200: 72,000,000 samples)."""
    variants: tuple[str, ...] = VARIANTS
    """bigmnist only."""
    form: Literal["shards", "virtual", "augmented"] = added_later("shards")
    """bigmnist only. shards: every copy lies on disk, with random draws of its own. virtual: one copy, addressed `copies` times.
    augmented: digits are augmented whenever they are read."""
    decoder: Literal["auto", "simplejpeg", "pillow", "torchvision"] = added_later("auto")
    """imagenet only. auto: simplejpeg where the compute environment has it, else Pillow."""
    augment: Literal["none", "crop_flip"] = added_later("none")
    """cifar10 and digits only. crop_flip: training images are padded by 4 pixels, cropped at random and mirrored half the
    time."""
    stage: Literal["none", "tmpdir"] = added_later("none")
    """tmpdir: one rank of each node copies the data to the node's own disk before the first step. Outside the id."""
    resident: bool = added_later(False)
    """mnist, cifar10 and digits only: the training set lies on each rank's device; needs `loader_workers_per_rank: 0`."""


@dataclass(frozen=True, kw_only=True)
class Ddp:
    """How DistributedDataParallel exchanges gradients; torch's own choices unless said otherwise."""

    bucket_cap_mb: NonNegative | None = None
    """MiB of gradients per all-reduce. None: 25, and 1 for the first bucket; a number holds for the first one too."""
    static_graph: bool = False
    """The graph of a step never changes."""
    gradient_as_bucket_view: bool = False
    """Gradients lie in the buckets, so that no copy is made."""
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """torch's communication hooks of these names."""
    powersgd_rank: Positive = 1
    """powersgd only: rank of its matrices."""


@dataclass(frozen=True, kw_only=True)
class Fsdp:
    """How torch's fully_shard has the parameters; `parallel: fsdp` and `hsdp` only. Nothing lies in the host's memory."""

    reshard_after_forward: bool = True
    """A block gives its parameters back after forward and gathers them again for backward. False: it holds them until backward is
    over."""


@dataclass(frozen=True, kw_only=True)
class OwnScript:
    """A training loop that is not hpcddp's: of its workload is known what could be read from its objects, and no more."""

    name: str
    """Of its file; launch.json has the content's hash among the versions."""
    arguments: tuple[str, ...] = ()
    """Of its command line."""
    iterations_per_step: Positive = 1
    """Of the loop, for each step that is measured: micro-batches whose gradients add up."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What trains."""

    model: str = ""
    """A known name, or `package.module:factory` called with (num_classes)."""
    data: Data = Data(name="")
    """What is trained on."""
    script: str | None = added_later(None)
    """A training script of the user's own, by its path from the sweep's file, in place of model and data."""
    args: Mapping[str, object] = added_later(dict)
    """`script` only: its arguments; each may be an axis. `depth: 12` is given as `--depth 12`, true as a bare `--depth`, a list
    as several words; false and null are not given."""
    samples_per_step: Positive | None = added_later(None)
    """`script` only: samples of a rank in a step. None: as the script says."""
    precision: Literal["fp32", "fp16", "bf16", "fp64"] = "fp32"
    """fp16 and bf16 are autocast, fp16 with loss scaling; fp64 is for checks on a CPU."""
    batch_per_gpu: Positive = 32
    """Samples per rank and optimizer step."""
    global_batch: Positive | None = None
    """`hold: global_batch` only: samples per step over all ranks."""
    accumulate: Positive = 1
    """Micro-batches per optimizer step, into which batch_per_gpu is divided."""
    loader_workers_per_rank: Literal["auto"] | Count = 2
    """Processes that load data for one rank; 0: the rank loads its own. auto: its physical cores less one, at least 1; 1 on
    `device: cpu`, 0 of resident data."""
    channels_last: bool = False
    """Images lie in memory as torch.channels_last."""
    parallel: Literal["ddp", "data_parallel", "none", "gather_scatter", "all_reduce", "fsdp", "hsdp"] = "ddp"
    """data_parallel: torch.nn.DataParallel, one process with all GPUs of a node. none: the bare model in one process. all_reduce,
    gather_scatter: gradients travel by hand after backward, parameter by parameter. fsdp: torch's fully_shard over all ranks.
    hsdp: over those of a node."""
    ddp: Ddp = Ddp()
    """How gradients are exchanged."""
    fsdp: Fsdp = added_later(Fsdp())
    """How parameters are sharded."""
    sync_batchnorm: bool = False
    """BatchNorm's statistics over all ranks; CUDA only."""
    tf32: bool | None = None
    """Whether fp32 may run as TF32. None: as torch has it; launch.json says how."""
    cudnn_benchmark: bool = True
    """cuDNN tries its algorithms on the first batch."""
    compile: bool = False
    """torch.compile; its time is in no step."""
    copy_ahead: bool = False
    """The next batch travels to the GPU while this one trains; CUDA only."""
    optimizer: Optimizer = Optimizer()
    """How parameters are updated."""
    seed: Count = 1
    """Of parameters, order of samples and augmentation."""

    @property
    def loader_workers(self) -> int:
        """Processes that load data for one rank of a point, where `auto` has become a number."""
        if self.loader_workers_per_rank == "auto":
            raise UsageError(
                "workload.loader_workers_per_rank is auto, but the physical cores per rank are unknown. Set "
                "layout.physical_cores_per_rank, or a number of workers"
            )
        return self.loader_workers_per_rank

    @property
    def known_batch(self) -> int | None:
        """Samples of a rank in a step; None where only the user's script knows."""
        return self.samples_per_step if self.script else self.batch_per_gpu


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where it trains: one rank per GPU (with `device: cpu`, one rank where a GPU would be)."""

    nodes: Positive = 1
    """Nodes of a run."""
    gpus_per_node: Positive = 1
    """GPUs on each node."""
    node_type: str | None = None
    """None: the profile's default."""
    physical_cores_per_rank: Positive | None = None
    """None: the node's cores divided by its GPUs."""
    exclusive: bool = True
    """Nodes are shared with no other job."""
    launcher: Literal["direct", "torchrun"] = "direct"
    """direct: srun, or the local runner, starts every rank. torchrun: it starts one torchrun per node."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """How a run is timed."""

    warmup_steps: Count = 50
    """Steps at the start that count in no statistic."""
    warmup: Literal["fixed", "detect"] = "fixed"
    """detect: steps after warmup_steps that still belong to the warm-up do not count either."""
    steps: Positive = 500
    """Timed steps after the warm-up; not used with `work: epoch`."""
    stop: Literal["steps", "seconds", "interval"] = "steps"
    """When a run ends: after `steps`; after `seconds`; or, from `steps` on, when the 95 % interval of its mean step is narrow."""
    seconds: NonNegative | None = None
    """`stop: seconds` only."""
    interval_percent: NonNegative = 2.0
    """`stop: interval` only: half the interval's width, as a share of the mean step."""
    max_steps: Positive = 20_000
    """`stop: interval` and `seconds` only."""
    gc: Literal["python", "frozen", "off"] = "python"
    """Garbage collection in the timed steps: as Python does it; with older objects left out; or none."""
    input: Literal["full", "synthetic", "io"] = "full"
    """synthetic: one resident batch over and over. io: batches are loaded and copied but not trained on."""
    comm: Literal["off", "on", "check"] = "off"
    """on: a communication hook times every bucket's all-reduce. check: measured in two other ways too; of a script, by torch's
    profiler."""
    profile_steps: Count = 0
    """Steps under torch.profiler, after the timed ones."""
    profile_ranks: tuple[int, ...] = (0,)
    """Ranks that write a trace."""
    keep_memory: bool = added_later(True)
    """`device: cpu` only: a rank keeps memory that it frees. False: it goes back to the kernel, and equal runs differ by 15 to 20
    %."""
    telemetry_hz: NonNegative = 1.0
    """Readings of GPUs (by nvidia-ml-py or amdsmi) and nodes; 0: none."""
    evaluate: bool = False
    """Accuracy on the whole evaluation set at the end, outside all timings."""
    resume: bool = False
    """Before the time limit a run writes a checkpoint, and its job is requeued and goes on. False: every attempt begins at step
    0."""
    checkpoint_every_min: NonNegative = 15.0
    """`resume` only. 0: only before the time limit."""
    epochs: Positive | None = added_later(None)
    """`work: train` only, which needs it: epochs that a run trains."""
    evaluate_every: Count = added_later(1)
    """`work: train` only: epochs between evaluations; 0: only after the last."""
    target_accuracy: NonNegative | None = added_later(None)
    """`work: train` only: the first evaluation that reaches this share ends the run."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One resolved combination; see the module's docstring."""

    cluster: str
    workload: Workload
    layout: Layout = Layout()
    measure: Measure = Measure()
    work: Literal["steps", "epoch", "train", "comm"] = "steps"
    """What one run does: a number of steps, one epoch of the data, all epochs of a training, or nothing but a benchmark of its
    ranks' collectives."""
    device: Literal["cuda", "cpu"] = "cuda"
    script: OwnScript | None = added_later(None)
    """The user's own training loop, which `hpcddp.probe` measured; None: hpcddp's own."""
    env: Mapping[str, str] = added_later(dict)
    """Variables of its ranks, above those of the profile."""

    @property
    def gpus(self) -> int:
        """Devices in all: nodes x GPUs per node."""
        return self.layout.nodes * self.layout.gpus_per_node

    @property
    def ranks_per_node(self) -> int:
        """Processes per node: one per GPU, or one for all with data_parallel."""
        return 1 if self.workload.parallel == "data_parallel" else self.layout.gpus_per_node

    @property
    def ranks(self) -> int:
        """Processes in all."""
        return self.layout.nodes * self.ranks_per_node

    @property
    def global_batch(self) -> int:
        """Samples per optimizer step over all GPUs."""
        return self.gpus * self.workload.batch_per_gpu

    @property
    def own_loop(self) -> bool:
        """Whether the loop is the user's: a script of the sweep, or one that was started by itself."""
        return self.script is not None or self.workload.script is not None

    @property
    def reads_data(self) -> bool:
        """Whether its runs open a data set that hpcddp knows: not for communication alone, nor for synthetic batches."""
        return self.work != "comm" and (self.measure.input != "synthetic" or self.evaluates)

    @property
    def by_hand(self) -> bool:
        """Whether gradients travel by hand, in no buckets and behind no computation."""
        return self.workload.parallel in get_args(ByHand)

    @property
    def sharded(self) -> bool:
        """Whether each rank holds a part of the parameters."""
        return self.workload.parallel in get_args(Sharded)

    @property
    def shards(self) -> int:
        """Ranks that hold one copy of the parameters between them; their number is the rank's modulo this."""
        if not self.sharded:
            return 1
        return self.ranks if self.workload.parallel == "fsdp" else self.layout.gpus_per_node

    @property
    def times_buckets(self) -> bool:
        """Whether its ranks record every bucket of gradients; shards travel in none."""
        return self.measure.comm != "off" and not self.sharded

    @property
    def evaluates(self) -> bool:
        """Whether a run of it evaluates: at its end, or epoch by epoch."""
        return self.measure.evaluate or self.work == "train"

    @functools.cached_property
    def id(self) -> str:
        """12 hexadecimal digits (48 bits) of the SHA-256 of the canonical text."""
        return hashlib.sha256(canonical(self).encode()).hexdigest()[:12]

    @functools.cached_property
    def label(self) -> str:
        """Folder and job name, such as `n04-g4-b32-3fa9c1d2e07b`: nodes, GPUs per node, batch per GPU, id. In place of the batch
        `comm` of a benchmark of collectives, and `script` where only the user's script knows it.
        """
        batch = self.workload.known_batch
        what = "comm" if self.work == "comm" else "script" if batch is None else f"b{batch}"
        return f"n{self.layout.nodes:02d}-g{self.layout.gpus_per_node}-{what}-{self.id}"


def comm_point(point: Point) -> Point:
    """The benchmark of the collectives on the point's ranks: of equal layouts and variables the same, whatever they train."""
    nothing = Workload(model="none", data=Data(name="none"), loader_workers_per_rank=0)
    return Point(cluster=point.cluster, workload=nothing, layout=point.layout, work="comm", device=point.device, env=point.env)


def canonical(point: Point) -> str:
    """The text that is hashed: JSON, sorted keys, ASCII, values equal to the default left out, `data.root` and
    `data.stage` never in it; nor is what only the job of a script finds out.
    """
    return to_json(encode(dataclasses.replace(point, workload=_hashed(point.workload)), keep_defaults=False))


def _hashed(workload: Workload) -> Workload:
    if workload.script:
        return Workload(script=workload.script, args=workload.args, samples_per_step=workload.samples_per_step)
    return dataclasses.replace(workload, data=dataclasses.replace(workload.data, root=None, stage="none"))


def to_json(plain: object) -> str:
    """One line of JSON with sorted keys: equal values give equal bytes."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def point_to_dict(point: Point) -> dict[str, object]:
    """The point in full, defaults included, as `point.json` holds it."""
    plain: dict[str, object] = encode(point)
    return plain


def point_from_dict(plain: object) -> Point:
    """The reverse; raises SchemaError for unknown or missing keys."""
    return decode(Point, plain)


def flat_keys(point: Point) -> dict[str, object]:
    """The point as `{"layout.nodes": 1, ...}`: keys as a sweep's axes name them. Of a script's workload what is known."""
    flat, workload = _flatten(encode(point, keep_later=True)), point.workload
    if workload.script is None:
        return {key: value for key, value in flat.items() if key not in OF_SCRIPT}
    known = (*OF_SCRIPT, *(FOUND_IN_SCRIPT if workload.model else ()))
    return {key: value for key, value in flat.items() if not key.startswith("workload.") or key.startswith(known)}


def scaling_kind(hold: str, work: str) -> str:
    """Strong where the work of a run is the same at every size, weak where it grows with the ranks."""
    if work == "epoch":
        return "strong scaling (fixed epoch)"
    if work == "train":
        return "strong scaling (fixed epochs)"
    return "strong scaling (fixed global batch)" if hold == "global_batch" else "weak scaling (fixed batch per GPU)"


def _flatten(plain: dict[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in plain.items():
        flat.update(_flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
    return flat
