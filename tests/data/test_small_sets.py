"""MNIST and CIFAR-10 from their official files, and the digits that stand in for them."""

from __future__ import annotations

import gzip
import hashlib
import random
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.core import official_files
from hpcddp.core.catalog import DIGITS
from hpcddp.core.errors import HpcddpError
from hpcddp.core.official_files import OFFICIAL, OfficialFile, OfficialSet
from hpcddp.core.point import Data
from hpcddp.data import Source, open_source
from hpcddp.data.small_sets import (
    ARCHIVE,
    Digits,
    cifar10_files,
    find_digits,
    official_digits,
    open_digits,
    sklearn_digits,
    unofficial_files,
)
from hpcddp.data.source import Split
from hpcddp.data.writing.prepare import prepare_digits
from tests.data.files import (
    CIFAR_NAMES,
    SPLITS,
    cifar_file,
    idx_images,
    idx_labels,
    noise,
    noise_digits,
    write_cifar,
    write_cifar_archive,
    write_mnist,
)


def official(folder: Path, *, algorithm: str) -> OfficialSet:
    """As if the folder's files were what a publisher serves."""
    files = (
        OfficialFile(path.name, path.stat().st_size, hashlib.new(algorithm, path.read_bytes()).hexdigest(), algorithm)
        for path in folder.iterdir()
    )
    return OfficialSet(tuple(files), (), ())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("folder", [".", "MNIST/raw"])
def test_other_mnist_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool, folder: str) -> None:
    write_mnist(tmp_path / folder, packed=packed)
    name = "train-images-idx3-ubyte.gz" if packed else "train-images-idx3-ubyte"
    monkeypatch.setitem(OFFICIAL, "mnist", official(tmp_path / folder, algorithm="md5"))
    assert unofficial_files("mnist", tmp_path) == ()
    file = tmp_path / folder / name
    if packed:
        file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()), compresslevel=1))
    else:
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert unofficial_files("mnist", tmp_path) == (name,)


def test_other_cifar10_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar(tmp_path / "unpacked")
    packed = write_cifar_archive(tmp_path).parent
    assert unofficial_files("cifar10", packed) == (ARCHIVE,)
    monkeypatch.setitem(OFFICIAL, "cifar10", official(tmp_path / "unpacked", algorithm="sha1"))
    assert unofficial_files("cifar10", tmp_path / "unpacked") == ()
    (tmp_path / "unpacked" / "data_batch_3.bin").write_bytes((tmp_path / "unpacked" / "data_batch_4.bin").read_bytes())
    assert unofficial_files("cifar10", tmp_path / "unpacked") == ("data_batch_3.bin",)


def test_an_archive_that_is_unpacked_in_part_is_read(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    archive = write_cifar_archive(tmp_path)
    assert len(cifar10_files(tmp_path, "train")) == 5
    (tmp_path / "data_batch_3.bin").unlink()
    assert cifar10_files(tmp_path, "train") == (archive,)
    assert cifar10_files(tmp_path, "eval") == (tmp_path / "test_batch.bin",)


def test_other_data_sets_have_no_publisher(tmp_path: Path) -> None:
    assert all(unofficial_files(name, tmp_path) is None for name in ("digits", "bigmnist", "imagenet", "mydata:images"))


def test_digests_are_complete() -> None:
    for published in OFFICIAL.values():
        files = (*published.files, *published.unpacked)
        assert len(published.by_name()) == len(files)
        assert all(len(bytes.fromhex(file.digest)) == hashlib.new(file.algorithm).digest_size for file in files)
    sizes = [file.size_bytes for file in official_files.MNIST.unpacked]
    assert sizes == [16 + 60_000 * 784, 8 + 60_000, 16 + 10_000 * 784, 8 + 10_000]
    assert {file.size_bytes for file in official_files.CIFAR10.unpacked} == {10_000 * 3073}


MNIST = Data(name="mnist")
CIFAR10 = Data(name="cifar10")


@pytest.mark.parametrize("folder", ["", "MNIST/raw"])
@pytest.mark.parametrize("packed", [False, True])
def test_mnist_is_read_as_served_and_as_torchvision_lays_it(tmp_path: Path, folder: str, packed: bool) -> None:
    write_mnist(tmp_path / folder, packed=packed)
    for split, count in zip(SPLITS, (20, 7), strict=True):
        source = open_source(MNIST, split, str(tmp_path))
        images, labels = source.batch(torch.tensor([count - 1, 0]))
        assert (len(source), source.shape, source.classes) == (count, (1, 28, 28), 10)
        assert (images.dtype, images.shape, labels.dtype) == (torch.uint8, (2, 1, 28, 28), torch.int64)
        assert images[1].flatten().tolist() == list(noise(count * 784, len(split)))[:784]
        assert labels.tolist() == [(count - 1) % 10, 0]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("train-images-idx3-ubyte", b"\x89PNG" + idx_images(20)[4:], "starts with 89504e47, not with 00000803"),
        ("train-images-idx3-ubyte", idx_labels(20), "starts with 00000801, not with 00000803"),
        ("train-images-idx3-ubyte", idx_images(20)[:-1], "holds 15695 bytes; its header promises 15696"),
        ("train-images-idx3-ubyte", idx_images(20)[:10], "its header promises"),
        ("train-images-idx3-ubyte", b"", "starts with , not with"),
        (
            "train-images-idx3-ubyte",
            b"\0\0\x08\x03" + (2).to_bytes(4, "big") * 3 + bytes(8),
            r"shape \(2, 2, 2\), not N x 28 x 28",
        ),
        ("train-images-idx3-ubyte", idx_images(0), "holds 16 bytes"),
        ("train-labels-idx1-ubyte", idx_labels(19), "holds 20 images, .*train-labels-idx1-ubyte 19 labels"),
        ("train-labels-idx1-ubyte", idx_labels(19)[:7] + b"\x14" + bytes([10] * 20), "holds the label 10; MNIST has 0 to 9"),
    ],
)
def test_a_broken_mnist_file_is_named(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    write_mnist(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(HpcddpError, match=sentence) as raised:
        open_source(MNIST, "train", str(tmp_path))
    assert str(tmp_path / name) in str(raised.value)


@pytest.mark.parametrize("damage", ["cut", "not gzip", "bits"])
def test_a_broken_gz_is_named(tmp_path: Path, damage: str) -> None:
    write_mnist(tmp_path, packed=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    good = path.read_bytes()
    middle = len(good) // 2
    flipped = good[:middle] + bytes(255 - byte for byte in good[middle : middle + 40]) + good[middle + 40 :]
    path.write_bytes({"cut": good[:-500], "not gzip": gzip.decompress(good), "bits": flipped}[damage])
    with pytest.raises(HpcddpError, match=r"cannot read .*train-images-idx3-ubyte.gz"):
        open_source(MNIST, "train", str(tmp_path))


def test_missing_mnist_says_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(
        HpcddpError, match=f"no train-images-idx3-ubyte or train-images-idx3-ubyte.gz in {tmp_path}: put MNIST's four"
    ):
        open_source(MNIST, "train", str(tmp_path))
    with pytest.raises(HpcddpError, match=f"in {tmp_path / 'nowhere'} .no such folder on"):
        open_source(MNIST, "eval", str(tmp_path / "nowhere"))


@pytest.mark.parametrize("where", ["root", "folder", "archive"])
def test_cifar10_is_read_from_its_binary_version(tmp_path: Path, where: str) -> None:
    if where == "archive":
        write_cifar_archive(tmp_path, random.Random(1).sample(CIFAR_NAMES, 6))
        numbers = [random.Random(1).sample(CIFAR_NAMES, 6).index(name) for name in CIFAR_NAMES]
    else:
        write_cifar(tmp_path if where == "root" else tmp_path / "cifar-10-batches-bin")
        numbers = list(range(6))
    source = open_source(CIFAR10, "train", str(tmp_path))
    images, labels = source.batch(torch.arange(15))
    expected = b"".join(cifar_file(number) for number in numbers[:5])
    records = [expected[start : start + 3073] for start in range(0, len(expected), 3073)]
    assert (len(source), source.shape, images.dtype) == (15, (3, 32, 32), torch.uint8)
    assert labels.tolist() == [record[0] for record in records]
    assert images.view(15, -1).tolist() == [list(record[1:]) for record in records]
    assert len(open_source(CIFAR10, "eval", str(tmp_path))) == 3
    assert where != "archive" or [path.name for path in tmp_path.iterdir()] == ["cifar-10-binary.tar.gz"]


@pytest.mark.parametrize("name", ["cifar-10-python.tar.gz", "cifar-10-batches-py/data_batch_1", "data_batch_1"])
def test_cifar10s_pickles_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"\x80\x02}q\x01.")
    with pytest.raises(
        HpcddpError, match=f"{name} is CIFAR-10's Python version, a pickle.*fetch the binary version, cifar-10-binary"
    ):
        open_source(CIFAR10, "train", str(tmp_path))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (cifar_file(2)[:-1], "data_batch_2.bin of .* holds 9218 bytes, not a multiple of 3073"),
        (b"", "data_batch_2.bin of .* holds 0 bytes"),
        (b"\x0b" + cifar_file(2)[1:], "data_batch_2.bin of .* holds the label 11; CIFAR-10 has 0 to 9"),
    ],
)
def test_a_broken_cifar10_file_is_named(tmp_path: Path, content: bytes, sentence: str) -> None:
    write_cifar(tmp_path)
    (tmp_path / "data_batch_2.bin").write_bytes(content)
    with pytest.raises(HpcddpError, match=sentence):
        open_source(CIFAR10, "train", str(tmp_path))


def test_missing_cifar10_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(HpcddpError, match=f"no data_batch_1.bin and no cifar-10-binary.tar.gz in {tmp_path}: put CIFAR-10's"):
        open_source(CIFAR10, "train", str(tmp_path))
    archive = write_cifar_archive(tmp_path, [name for name in CIFAR_NAMES if name != "data_batch_4.bin"])
    with pytest.raises(HpcddpError, match=r"cifar-10-binary.tar.gz lacks data_batch_4.bin"):
        open_source(CIFAR10, "train", str(tmp_path))
    archive.write_bytes(archive.read_bytes()[:-3000])
    with pytest.raises(HpcddpError, match=r"cannot read .*cifar-10-binary.tar.gz"):
        open_source(CIFAR10, "train", str(tmp_path))
    archive.unlink()
    write_cifar(tmp_path)
    (tmp_path / "data_batch_5.bin").unlink()
    with pytest.raises(HpcddpError, match=r"no data_batch_5.bin"):
        open_source(CIFAR10, "train", str(tmp_path))


def counts(digits: Digits) -> tuple[int, int]:
    return len(digits.train_labels), len(digits.eval_labels)


def test_sklearns_digits_are_split_and_scaled() -> None:
    digits = sklearn_digits()
    assert counts(digits) == (1498, 299)
    assert digits.train_images.shape == (1498, 1, 28, 28)
    assert (digits.train_images.dtype, digits.train_labels.dtype) == (torch.uint8, torch.int64)
    assert int(digits.train_images.max()) == 255
    assert int(digits.train_images[:, 0, 0, 0].max()) < 100
    assert digits.train_labels[:7].tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert digits.eval_labels[0] == 5
    assert set(digits.eval_labels.tolist()) == set(range(10))


def test_official_digits_are_mnists_files(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    digits = official_digits(tmp_path)
    assert (counts(digits), digits.source) == ((20, 7), "mnist")
    assert digits.message == f"digits: MNIST's own 20 from {tmp_path}"


def test_auto_takes_mnist_where_it_is(tmp_path: Path) -> None:
    assert find_digits("auto", tmp_path).message.endswith("upscaled to 28 x 28; not MNIST")
    assert find_digits("auto", None).source == "sklearn"
    write_mnist(tmp_path / "MNIST" / "raw", packed=True)
    assert find_digits("auto", tmp_path).source == "mnist"
    assert find_digits("sklearn", tmp_path).source == "sklearn"


def test_mnist_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(HpcddpError, match="no train-images-idx3-ubyte"):
        find_digits("mnist", tmp_path)
    with pytest.raises(HpcddpError, match="need the folder"):
        find_digits("mnist", None)


def test_the_checksum_tells_digits_apart(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    before = official_digits(tmp_path)
    for name in ("train_images", "train_labels", "eval_images", "eval_labels"):
        changed = official_digits(tmp_path)
        tensor = getattr(changed, name).view(-1)
        tensor[3] = 9 - tensor[3] % 9
        assert changed.sha256 != before.sha256
    assert official_digits(tmp_path).sha256 == before.sha256


def all_of(source: Source) -> tuple[torch.Tensor, torch.Tensor]:
    return source.batch(torch.arange(len(source)))


def test_prepared_digits_are_the_catalogs(tmp_path: Path) -> None:
    """As many as the catalog says, with its statistics; the command says that they are not CIFAR-10."""
    done = CliRunner().invoke(main, ["data", "prepare", "digits", "--root", str(tmp_path)])
    assert done.stdout == f"1,797 digits of scikit-learn's in {tmp_path}, 3 x 32 x 32; not CIFAR-10\n"
    samples: dict[Split, int] = {"train": DIGITS.train_samples, "eval": DIGITS.eval_samples}
    for split, number in samples.items():
        source = open_source(Data(name="digits"), split, str(tmp_path))
        assert (len(source), source.shape, source.classes) == (number, DIGITS.shape, DIGITS.classes)
    pixels = all_of(open_digits(tmp_path, "train"))[0].double() / 255
    assert [round(float(pixels[:, channel].mean()), 4) for channel in range(3)] == list(DIGITS.mean)
    assert [round(float(pixels[:, channel].std()), 4) for channel in range(3)] == list(DIGITS.std)


def test_a_digit_is_the_same_in_every_channel_with_a_dark_margin(tmp_path: Path) -> None:
    digits = noise_digits(12, 5)
    assert prepare_digits(tmp_path, digits) == 17
    images, labels = all_of(open_digits(tmp_path, "eval"))
    assert torch.equal(labels, digits.eval_labels)
    assert all(torch.equal(images[:, channel, 2:-2, 2:-2], digits.eval_images[:, 0]) for channel in range(3))
    assert int(images.sum()) == 3 * int(digits.eval_images.sum())


@pytest.mark.dear
def test_the_held_out_digits_are_not_trained_on(tmp_path: Path) -> None:
    prepare_digits(tmp_path, sklearn_digits())
    train, held_out = (
        {bytes(each) for each in all_of(open_digits(tmp_path, split))[0].flatten(1)} for split in ("train", "eval")
    )
    assert (len(train), len(held_out)) == (1498, 299)
    assert not train & held_out


def test_digits_that_are_not_there_or_broken(tmp_path: Path) -> None:
    with pytest.raises(HpcddpError, match=f"no digits-train.bin in {tmp_path}: `hpcddp data prepare digits --root {tmp_path}`"):
        open_digits(tmp_path, "train")
    (tmp_path / "digits-train.bin").write_bytes(b"\1" * 3072)
    with pytest.raises(HpcddpError, match=r"holds 3072 bytes, not a multiple of 3073 .*: prepare it again"):
        open_digits(tmp_path, "train")
    (tmp_path / "file").write_text("")
    with pytest.raises(HpcddpError, match="cannot write digits into"):
        prepare_digits(tmp_path / "file", noise_digits(2, 2))
