from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.catalog import DATASETS, check_workload, is_factory, parameters, train_samples
from hpcddp.core.data_job import DataTask
from hpcddp.core.errors import UsageError
from hpcddp.core.gpu_peaks import PEAKS, PRECISIONS, gpu_peak, peak_flops_per_s
from hpcddp.core.point import Data, Workload
from hpcddp.core.prepared import FILES, prepare_task, unprepared
from hpcddp.data import small_sets
from hpcddp.data.bigmnist import shards
from hpcddp.data.pictures import image_folder, tar_shards


def workload(model: str, data: str, batch: int = 32, accumulate: int = 1) -> Workload:
    return Workload(model=model, data=Data(name=data), batch_per_gpu=batch, accumulate=accumulate)


def test_samples_of_an_epoch() -> None:
    assert train_samples(Data(name="bigmnist")) == 72_000_000
    assert train_samples(Data(name="bigmnist", copies=2, variants=("plain", "flipped"))) == 240_000
    assert [train_samples(Data(name=name)) for name in ("mnist", "imagenet", "my.data:make")] == [60_000, 1_281_167, None]


def test_parameters_go_by_classes() -> None:
    by_hand = (32 * 9 + 32) + (64 * 32 * 9 + 64) + (64 * 7 * 7 * 128 + 128) + (128 * 10 + 10)
    assert parameters(workload("mnist-cnn", "bigmnist")) == by_hand == 421_642
    assert parameters(workload("resnet50", "imagenet")) == 25_557_032
    assert parameters(workload("resnet50", "cifar10")) == 23_520_842
    assert parameters(workload("m:f", "imagenet")) is parameters(workload("resnet50", "m:f")) is None


@pytest.mark.parametrize("name", ["a:b", "a.b:c", "a", "a.b", ":b", "a:", "a..b:c", "a-b:c"])
def test_factory_names(name: str) -> None:
    assert is_factory(name) is (name in ("a:b", "a.b:c"))


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        ("mnist-cnn", {"name": "bigmnst"}, "no data set `bigmnst`; did you mean `bigmnist`"),
        ("resnet51", {"name": "imagenet"}, "no model `resnet51`; did you mean `resnet50`"),
        ("resnet18", {"name": "mnist"}, "model `resnet18` takes images of 3 channels; data `mnist` has 1"),
        ("mnist-cnn", {"name": "cifar10"}, "model `mnist-cnn` takes images of 1 channel; data `cifar10` has 3"),
        ("mnist-cnn", {"name": "bigmnist", "variants": ("rotatde",)}, "no variant `rotatde` of .*; did you mean `rotated`"),
        ("mnist-cnn", {"name": "bigmnist", "variants": ()}, "empty"),
    ],
)
def test_what_is_not_known_or_does_not_fit(model: str, data: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_workload(Workload(model=model, data=Data(**data)))


@pytest.mark.parametrize(("model", "data"), [("mnist-cnn", "mnist"), ("mnist-cnn", "m:f"), ("m:f", "mnist"), ("m:f", "m:f")])
def test_batch_must_divide(model: str, data: str) -> None:
    check_workload(workload(model, data, 32, 4))
    with pytest.raises(UsageError, match="batch_per_gpu 32 cannot be split into accumulate = 3 equal micro-batches"):
        check_workload(workload(model, data, 32, 3))


def test_statistics_per_channel() -> None:
    assert all(len(facts.mean) == len(facts.std) == facts.shape[0] for facts in DATASETS.values())


NAMES = {
    "Tesla V100-SXM2-16GB": ("fp16", 125e12),
    "Tesla V100-PCIE-32GB": ("fp32", 14e12),
    "Tesla T4": ("fp16", 65e12),
    "Tesla P100-PCIE-16GB": ("fp64", 4.7e12),
    "A100-SXM4-40GB": ("tf32", 156e12),
    "NVIDIA A100-SXM4-80GB": ("bf16", 312e12),
    "NVIDIA A100 80GB PCIe": ("fp32", 19.5e12),
    "NVIDIA A40": ("tf32", 74.8e12),
    "NVIDIA L40S": ("bf16", 362e12),
    "NVIDIA GeForce RTX 3090": ("fp16", 71e12),
    "NVIDIA GeForce RTX 4090": ("fp32", 82.6e12),
    "NVIDIA H100 80GB HBM3": ("bf16", 989.5e12),
    "NVIDIA H100 PCIe": ("bf16", 756e12),
    "NVIDIA H200": ("tf32", 494.5e12),
    "NVIDIA GH200 480GB": ("fp64", 67e12),
    "NVIDIA B200": ("bf16", 2250e12),
    "NVIDIA A10G": ("bf16", 70e12),
    "NVIDIA GB200": ("bf16", 2500e12),
    "NVIDIA L4": ("bf16", 121e12),
    "NVIDIA A100-SXM-64GB": ("fp64", 22.4e12),
    "AMD Instinct MI250X": ("fp64", 47.9e12),
    "AMD Instinct MI300A": ("bf16", 980.6e12),
    "AMD Instinct MI300X": ("tf32", 653.7e12),
}


@pytest.mark.parametrize(("gpu", "known"), NAMES.items())
def test_names_torch_reports_are_known(gpu: str, known: tuple[str, float]) -> None:
    precision, flops = known
    assert peak_flops_per_s(gpu, precision) == pytest.approx(flops)


@pytest.mark.parametrize(
    "gpu",
    [
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",  # a seventh of it
        "AMD Instinct MI300X VF",  # a part of one for a virtual machine
        "AMD Instinct MI250",  # fewer units than MI250X
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H100",
        "Tesla V100-SXM2-16GB + NVIDIA A40",
        "",
    ],
)
def test_other_gpus_are_unknown(gpu: str) -> None:
    """A name that merely begins alike is another GPU: unknown is better than wrong."""
    assert (gpu_peak(gpu), peak_flops_per_s(gpu, "fp32")) == (None, None)
    assert peak_flops_per_s("Tesla V100-SXM2-16GB", "bf16") is peak_flops_per_s("NVIDIA A40", "name") is None


def test_every_figure_has_a_source() -> None:
    for peak in PEAKS:
        assert peak.source
        known = [value for name in PRECISIONS if (value := getattr(peak, name)) is not None]
        assert known == sorted(known), peak.name


def test_v100_by_hand() -> None:
    """5,120 units x 2 operations x 1.53 GHz, and 640 tensor cores x 64 x 2: the data sheet's figures within its rounding."""
    assert peak_flops_per_s("Tesla V100-SXM2-32GB", "fp32") == pytest.approx(5120 * 2 * 1.53e9, rel=0.01)
    assert peak_flops_per_s("Tesla V100-SXM2-32GB", "fp16") == pytest.approx(640 * 64 * 2 * 1.53e9, rel=0.01)


def test_mi250x_by_hand() -> None:
    """A die: 110 units x 1,024 operations a cycle x 1.7 GHz in bf16, a quarter of it in fp32 and fp64."""
    bf16, fp32, fp64 = (peak_flops_per_s("AMD Instinct MI250X", name) for name in ("bf16", "fp32", "fp64"))
    assert bf16 == pytest.approx(110 * 1024 * 1.7e9, rel=0.001)
    assert fp32 == fp64 == pytest.approx(110 * 256 * 1.7e9, rel=0.001)


@pytest.mark.parametrize(("gpu", "units"), [("AMD Instinct MI300A", 228), ("AMD Instinct MI300X", 304)])
def test_mi300_by_hand(gpu: str, units: int) -> None:
    """Units x 2.1 GHz x 256 operations a cycle in fp32 and fp64, 1,024 in TF32, 2,048 in bf16."""
    for precision, operations in (("fp64", 256), ("fp32", 256), ("tf32", 1024), ("bf16", 2048)):
        assert peak_flops_per_s(gpu, precision) == pytest.approx(units * operations * 2.1e9, rel=0.001)


def test_leonardos_a100_has_more_of_the_same_units() -> None:
    """Every format is faster than an A100's by the same factor, fp32's."""
    for precision in ("fp64", "tf32", "bf16"):
        own, known = (peak_flops_per_s(f"NVIDIA A100-SXM{kind}", precision) or 0.0 for kind in ("-64GB", "4-80GB"))
        assert own == pytest.approx(22.4 / 19.5 * known, rel=0.001) != 0.0


def test_a_task_has_the_places_of_its_folders_and_a_command_for_a_shell() -> None:
    """A folder that is not there yet cannot be shown in one, the one above it can."""
    options = {"root": "$SCRATCH/a/b", "out": "/data", "mnist_root": "$WORK", "copies": 2}
    task = DataTask(action="pack", data="imagenet", options=options, folders=("root", "out", "mnist_root"))
    assert task.places == ("$SCRATCH/a", "/data", "$WORK")
    task = DataTask(action="prepare", data="digits", options={"root": "$S/my data", "mnist_root": None}, folders=("root",))
    assert task.command == 'hpcddp data prepare digits --root "$S/my data"'
    assert DataTask(action="prepare", data="digits", options={"root": "a b"}).command.endswith("--root 'a b'")


def test_names_are_those_that_are_read() -> None:
    assert set(FILES) == {name for name in DATASETS if not name.startswith("synthetic-")}
    assert FILES["bigmnist"] == (shards.MANIFEST,)
    assert FILES["digits"] == (small_sets.DIGITS_FILES["train"],)
    assert FILES["imagenet"] == (tar_shards.TAR_MANIFEST, image_folder.FOLDERS["train"])
    first = small_sets.CIFAR10_FILES["train"][0]
    assert FILES["cifar10"] == (small_sets.ARCHIVE, first, f"{small_sets.FOLDER}/{first}")
    assert all(f"{small_sets.STEMS['train']}-images-idx3-ubyte" in name for name in FILES["mnist"])


@pytest.mark.parametrize("name", sorted(FILES))
def test_any_of_its_files_will_do(name: str, tmp_path: Path) -> None:
    found = unprepared(Data(name=name), tmp_path)
    assert found is not None
    assert (found.is_missing, str(tmp_path) in found.text, "ROOT" in found.text) == (True, True, False)
    for number, file in enumerate(FILES[name]):
        place = tmp_path / str(number) / file
        place.parent.mkdir(parents=True)
        place.write_text("?")
        assert unprepared(Data(name=name), tmp_path / str(number)) is None


def test_another_bigmnist_is_no_missing_one(tmp_path: Path) -> None:
    (tmp_path / "bigmnist.json").write_text('{"copies": 4, "variants": ["plain", "rotated"]}')
    same = Data(name="bigmnist", copies=4, variants=("plain", "rotated"))
    assert unprepared(same, tmp_path) is None
    for data, words in (
        (Data(name="bigmnist", copies=5, variants=("plain", "rotated")), "data.copies is 5, but the bigMNIST in"),
        (Data(name="bigmnist", copies=4, variants=("plain",)), "data.variants is plain, but the bigMNIST in"),
    ):
        found = unprepared(data, tmp_path)
        assert (found and (found.is_missing, found.text.startswith(words))) == (False, True)


def test_each_form_needs_its_own(tmp_path: Path) -> None:
    """One copy on disk serves `virtual`, however often it is addressed, and the digits alone `augmented`."""
    (tmp_path / "bigmnist.json").write_text('{"copies": 1, "variants": ["plain", "rotated"]}')
    both = ("plain", "rotated")
    assert unprepared(Data(name="bigmnist", form="virtual", variants=both), tmp_path) is None
    assert unprepared(Data(name="bigmnist", form="augmented"), tmp_path) is None
    assert unprepared(Data(name="bigmnist", form="virtual"), tmp_path) is not None
    assert unprepared(Data(name="bigmnist", form="shards", variants=both), tmp_path) is not None
    options: Any = {"virtual": {"copies": 1}, "augmented": {"copies": 1, "variants": "plain"}, "shards": {}}
    for form, wanted in options.items():
        task = prepare_task(Data(name="bigmnist", form=form), "r")
        assert task is not None
        assert task.options == {"root": "r"} | wanted


def test_a_task_is_what_a_user_would_type() -> None:
    """What is the command's default is left out, so that both are the same task."""
    usual = DataTask(action="prepare", data="bigmnist", options={"root": "$S/b"}, folders=("root",))
    assert prepare_task(Data(name="bigmnist"), "$S/b") == usual
    small = prepare_task(Data(name="bigmnist", copies=2, variants=("plain",)), "b c")
    assert small is not None
    assert small.command == "hpcddp data prepare bigmnist --root 'b c' --copies 2 --variants plain"
    assert prepare_task(Data(name="imagenet"), "x") is None
