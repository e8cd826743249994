from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from hpcddp.core import official_files
from hpcddp.core.official_files import OFFICIAL, OfficialFile, OfficialSet
from hpcddp.data.cifar10 import ARCHIVE, cifar10_files
from hpcddp.data.official import unofficial_files
from tests.data.files import write_cifar, write_cifar_archive, write_mnist


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
    """Packed or not, wherever they are read from; those that are the publisher's are not."""
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
    """The archive, or what is unpacked of the training set."""
    write_cifar(tmp_path / "unpacked")
    packed = write_cifar_archive(tmp_path).parent
    assert unofficial_files("cifar10", packed) == (ARCHIVE,)
    monkeypatch.setitem(OFFICIAL, "cifar10", official(tmp_path / "unpacked", algorithm="sha1"))
    assert unofficial_files("cifar10", tmp_path / "unpacked") == ()
    (tmp_path / "unpacked" / "data_batch_3.bin").write_bytes((tmp_path / "unpacked" / "data_batch_4.bin").read_bytes())
    assert unofficial_files("cifar10", tmp_path / "unpacked") == ("data_batch_3.bin",)


def test_an_archive_that_is_unpacked_in_part_is_read(tmp_path: Path) -> None:
    """Whoever stopped unpacking it still has all of it there."""
    write_cifar(tmp_path)
    archive = write_cifar_archive(tmp_path)
    assert len(cifar10_files(tmp_path, "train")) == 5
    (tmp_path / "data_batch_3.bin").unlink()
    assert cifar10_files(tmp_path, "train") == (archive,)
    assert cifar10_files(tmp_path, "eval") == (tmp_path / "test_batch.bin",)


def test_other_data_sets_have_no_publisher(tmp_path: Path) -> None:
    """Nothing is said of what hpcddp makes, or the user."""
    assert all(unofficial_files(name, tmp_path) is None for name in ("digits", "bigmnist", "imagenet", "mydata:images"))


def test_digests_are_complete() -> None:
    """Each of the right length for its algorithm, each name once; unpacked sizes are those of the format."""
    for published in OFFICIAL.values():
        files = (*published.files, *published.unpacked)
        assert len(published.by_name()) == len(files)
        assert all(len(bytes.fromhex(file.digest)) == hashlib.new(file.algorithm).digest_size for file in files)
    sizes = [file.size_bytes for file in official_files.MNIST.unpacked]
    assert sizes == [16 + 60_000 * 784, 8 + 60_000, 16 + 10_000 * 784, 8 + 10_000]
    assert {file.size_bytes for file in official_files.CIFAR10.unpacked} == {10_000 * 3073}
