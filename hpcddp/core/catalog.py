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

PARAMETERS = {
    ("mnist-cnn", 10): 421_642,
    ("resnet18", 1000): 11_689_512,
    ("resnet18", 10): 11_173_962,
    ("resnet50", 1000): 25_557_032,
    ("resnet50", 10): 23_520_842,
    ("vgg11", 1000): 132_863_336,
    ("vgg11", 10): 9_225_610,
    ("vit_b_16", 1000): 86_567_656,
    ("vit_b_16", 10): 85_152_010,
    ("vit_l_16", 1000): 304_326_632,
    ("vit_l_16", 10): 302_439_434,
}
"""(model, classes) -> parameters; 10 classes: variants for 32 x 32 images (3 x 3 stem, one linear layer, 4 x 4 patches)."""

MODELS = tuple(sorted({name for name, _ in PARAMETERS}))


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
    return PARAMETERS.get((workload.model, facts.classes))


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
