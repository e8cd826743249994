"""What is known of models and data sets without loading either, for planning and checks; and how a job finds the user's own."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from hpcddp.core.errors import UsageError
from hpcddp.core.point import VARIANTS, Data, Workload
from hpcddp.core.schema import did_you_mean


@dataclass(frozen=True)
class DatasetFacts:
    """One known data set; `shape` is channels, height, width of a sample as it is trained on."""

    shape: tuple[int, int, int]
    classes: int
    train_samples: int
    eval_samples: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


MNIST = DatasetFacts((1, 28, 28), 10, 60_000, 10_000, (0.1307,), (0.3081,))
CIFAR10 = DatasetFacts((3, 32, 32), 10, 50_000, 10_000, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
DIGITS = DatasetFacts((3, 32, 32), 10, 1_498, 299, (0.2338,) * 3, (0.3122,) * 3)
IMAGENET = DatasetFacts((3, 224, 224), 1000, 1_281_167, 50_000, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

DATASETS = {
    "mnist": MNIST,
    "bigmnist": MNIST,
    "cifar10": CIFAR10,
    "imagenet": IMAGENET,
    "digits": DIGITS,
    "synthetic-mnist": MNIST,
    "synthetic-cifar10": CIFAR10,
    "synthetic-imagenet": IMAGENET,
}
"""Statistics per channel (mean, standard deviation of pixels in 0..1) as torchvision's and seed 004's recipes use them; those of
digits are its own."""

FP32_BYTES = 4

VIT_B, VIT_L = (28_351_488,), (33_583_104, 33_591_296, 33_595_392)

BUCKETS = {
    ("mnist-cnn", 10): (1_611_304, 75_264),
    ("resnet18", 1000): (2_052_000, 28_852_224, 15_853_824),
    ("resnet18", 10): (9_461_800, 26_494_976, 8_739_072),
    ("resnet50", 1000): (8_196_000, 31_502_336, 26_255_360, 26_550_272, 9_724_160),
    ("resnet50", 10): (4_292_648, 27_291_648, 26_255_360, 26_550_272, 9_693_440),
    ("vgg11", 1000): (16_388_000, 67_125_248, 411_058_176, 28_315_648, 8_566_272),
    ("vgg11", 10): (9_457_704, 27_141_120, 303_616),
    ("vit_b_16", 1000): (3_076_000, *VIT_B * 12, 2_976_768),
    ("vit_b_16", 10): (9_477_160, *VIT_B * 11, 19_264_512),
    ("vit_l_16", 1000): (4_100_000, *VIT_L * 12, 3_969_024),
    ("vit_l_16", 10): (16_830_504, VIT_L[2], *VIT_L * 11, VIT_L[0], 17_281_024),
}
"""(model, classes) -> bytes of each bucket of fp32 gradients, in the order in which they are ready, by torch's default sizes; 10
classes: variants for 32 x 32 images (3 x 3 stem, one linear layer, 4 x 4 patches)."""

READY = {
    ("mnist-cnn", 10): (0.2,),
    ("resnet18", 1000): (0.01, 0.21),
    ("resnet18", 10): (0.07, 0.34),
    ("resnet50", 1000): (0.01, 0.11, 0.24, 0.48),
    ("resnet50", 10): (0.01, 0.09, 0.20, 0.44),
    ("vgg11", 1000): (0.01, 0.05, 0.39, 0.60),
    ("vgg11", 10): (0.13, 0.83),
}
"""When they are, but for the last, as shares of backward: measured on a processor of two cores. ViT's blocks are all alike: their
buckets are ready one after the other."""

MODELS = tuple(sorted({name for name, _ in BUCKETS}))


def is_factory(name: str) -> bool:
    """True for `package.module:factory`, the user's own model or data."""
    module, colon, factory = name.partition(":")
    return bool(colon) and factory.isidentifier() and all(part.isidentifier() for part in module.split("."))


def dataset_facts(data: Data) -> DatasetFacts | None:
    """Facts of a known data set, None for the user's own and a script's; UsageError for a name that is neither."""
    if not data.name or is_factory(data.name):
        return None
    if data.name not in DATASETS:
        raise UsageError(f"no data set `{data.name}`{did_you_mean(data.name, DATASETS)} (or package.module:factory)")
    return DATASETS[data.name]


def is_on_disk(data: Data) -> bool:
    """True for a known set that is read from a folder."""
    return dataset_facts(data) is not None and not data.name.startswith("synthetic-")


def train_samples(data: Data) -> int | None:
    """Samples in one epoch; None where only the files know."""
    facts = dataset_facts(data)
    if facts is None:
        return None
    return facts.train_samples * (data.copies * len(data.variants) if data.name == "bigmnist" else 1)


def parameters(workload: Workload) -> int | None:
    """Trainable parameters; None for the user's own model or data."""
    facts = dataset_facts(workload.data)
    if is_factory(workload.model) or facts is None:
        return None
    sizes = BUCKETS.get((workload.model, facts.classes))
    return None if sizes is None else sum(sizes) // FP32_BYTES


def gradient_buckets(workload: Workload) -> list[tuple[float, float]] | None:
    """Bytes, and when it is ready as a share of backward, of each bucket; None of what only a run with `comm: on` can tell. With
    `accumulate` gradients travel in the last micro-batch's share of it.
    """
    facts = dataset_facts(workload.data)
    key = workload.model, facts.classes if facts else 0
    if key not in BUCKETS or workload.ddp.bucket_cap_mb is not None or workload.precision == "fp64":
        return None
    sizes, width = BUCKETS[key], 0.5 if workload.ddp.compression in ("fp16", "bf16") else 1.0
    ready = READY.get(key, tuple((index + 1) / len(sizes) for index in range(len(sizes) - 1)))
    return [(size * width, 1 - (1 - share) / workload.accumulate) for size, share in zip(sizes, (*ready, 1.0), strict=True)]


def check_workload(workload: Workload) -> None:
    """UsageError where model and data do not fit each other or a name is not known; a script's are its own."""
    if workload.script:
        return
    if not is_factory(workload.model) and workload.model not in MODELS:
        raise UsageError(f"no model `{workload.model}`{did_you_mean(workload.model, MODELS)} (or package.module:factory)")
    if workload.batch_per_gpu % workload.accumulate:
        raise UsageError(
            f"batch_per_gpu {workload.batch_per_gpu} cannot be split into accumulate = {workload.accumulate} equal micro-batches"
        )
    _check_variants(workload.data)
    facts = dataset_facts(workload.data)
    if facts is None or is_factory(workload.model):
        return
    wants = 1 if workload.model == "mnist-cnn" else 3
    if facts.shape[0] != wants:
        raise UsageError(
            f"model `{workload.model}` takes images of {wants} channel{'s' if wants > 1 else ''}; "
            f"data `{workload.data.name}` has {facts.shape[0]}"
        )


def _check_variants(data: Data) -> None:
    if not data.variants:
        raise UsageError(f"data.variants is empty; name at least one of {', '.join(VARIANTS)}")
    for variant in data.variants:
        if variant not in VARIANTS:
            raise UsageError(f"no variant `{variant}` of bigmnist{did_you_mean(variant, VARIANTS)}")


def load_factory(what: str, name: str) -> Any:
    """The function that `name` says; UsageError where it is not there. `what` (model or data) is for the error."""
    module_name, _, factory_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there; what it imports is not, and its own traceback says so best
        raise UsageError(f"{what} `{name}`: there is no module `{error.name}` on the job's PYTHONPATH") from error
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise UsageError(f"{what} `{name}`: {module_name} ({module.__file__}) has no function `{factory_name}`")
    return factory
