"""Facts on models and data sets."""

from __future__ import annotations

import pytest

from hpcddp.core.catalog import DATASETS, check_workload, dataset_facts, is_factory, parameters, train_samples
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Data, Workload


def workload(model: str, data: str, batch: int = 32, accumulate: int = 1) -> Workload:
    return Workload(model=model, data=Data(name=data), batch_per_gpu=batch, accumulate=accumulate)


def test_bigmnist_samples() -> None:
    """Six variants of 60,000 digits, 200 times over, are 72,000,000 samples; copies and variants scale it."""
    assert train_samples(Data(name="bigmnist")) == 72_000_000
    assert train_samples(Data(name="bigmnist", copies=2, variants=("plain", "flipped"))) == 240_000


def test_copies_count_for_bigmnist_only() -> None:
    """Other sets have the samples they have; of the user's own nothing is known."""
    assert train_samples(Data(name="mnist")) == 60_000
    assert train_samples(Data(name="imagenet")) == 1_281_167
    assert train_samples(Data(name="my.data:make")) is None


def test_mnist_cnn_parameters() -> None:
    """Two convolutions and two linear layers: 320 + 18,496 + 401,536 + 1,290 = 421,642."""
    by_hand = (32 * 9 + 32) + (64 * 32 * 9 + 64) + (64 * 7 * 7 * 128 + 128) + (128 * 10 + 10)
    assert parameters(workload("mnist-cnn", "bigmnist")) == by_hand == 421_642


def test_parameters_go_by_classes() -> None:
    """ResNet-50 has 25,557,032 parameters for ImageNet, fewer with ten classes; the user's own are unknown."""
    assert parameters(workload("resnet50", "imagenet")) == 25_557_032
    assert parameters(workload("resnet50", "cifar10")) == 23_520_842
    assert parameters(workload("m:f", "imagenet")) is None
    assert parameters(workload("resnet50", "m:f")) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a:b", True),
        ("a.b:c", True),
        ("a", False),
        ("a.b", False),
        (":b", False),
        ("a:", False),
        ("a..b:c", False),
        ("a-b:c", False),
    ],
)
def test_factory_names(name: str, expected: bool) -> None:
    """A factory is `package.module:name`, all of them Python names."""
    assert is_factory(name) is expected


def test_unknown_names() -> None:
    """A name that is neither known nor a factory is refused with the nearest known one."""
    with pytest.raises(UsageError, match="no data set `bigmnst`; did you mean `bigmnist`"):
        dataset_facts(Data(name="bigmnst"))
    with pytest.raises(UsageError, match="no model `resnet51`; did you mean `resnet50`"):
        check_workload(workload("resnet51", "imagenet"))


def test_channels_must_fit() -> None:
    """A model for one channel does not take colour images, nor the other way round."""
    with pytest.raises(UsageError, match="model `resnet18` takes images of 3 channels; data `mnist` has 1"):
        check_workload(workload("resnet18", "mnist"))
    with pytest.raises(UsageError, match="model `mnist-cnn` takes images of 1 channel; data `cifar10` has 3"):
        check_workload(workload("mnist-cnn", "cifar10"))


@pytest.mark.parametrize(
    ("model", "data"), [("mnist-cnn", "mnist"), ("mnist-cnn", "m:data"), ("m:model", "mnist"), ("m:f", "m:f")]
)
def test_batch_must_divide(model: str, data: str) -> None:
    """batch_per_gpu is divided evenly among accumulate micro-batches, the user's own model or data included."""
    check_workload(workload(model, data, 32, 4))
    with pytest.raises(UsageError, match="batch_per_gpu 32 cannot be split into accumulate = 3 equal micro-batches"):
        check_workload(workload(model, data, 32, 3))


def test_variants_must_be_known() -> None:
    """A variant that does not exist is refused with the nearest one; so is none at all."""
    for variants, says in ((("plain", "rotatde"), "no variant `rotatde` of bigmnist; did you mean `rotated`"), ((), "empty")):
        with pytest.raises(UsageError, match=says):
            check_workload(Workload(model="mnist-cnn", data=Data(name="bigmnist", variants=variants)))


def test_statistics_per_channel() -> None:
    """Every set gives a mean and a deviation for each channel."""
    for facts in DATASETS.values():
        assert len(facts.mean) == len(facts.std) == facts.shape[0]
