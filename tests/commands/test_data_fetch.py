from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.commands import data_fetch
from hpcddp.core.official_files import CIFAR10, MNIST, OfficialFile, OfficialSet
from hpcddp.core.point import Data
from hpcddp.data import open_source
from hpcddp.data.cifar10 import ARCHIVE
from hpcddp.data.mnist import STEMS
from hpcddp.data.writing import fetch
from tests.data.files import write_mnist
from tests.file_server import file_answer, file_server


def test_what_is_fetched_is_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four files from a server, checked, under the names that training reads; a second time nothing is asked for."""
    write_mnist(tmp_path / "served", packed=True)
    contents = {path.name: path.read_bytes() for path in (tmp_path / "served").iterdir()}
    files = tuple(OfficialFile(name, len(content), hashlib.md5(content).hexdigest()) for name, content in contents.items())
    monkeypatch.setattr(data_fetch, "MNIST", OfficialSet(files, MNIST.unpacked, (), MNIST.folders))
    with file_server() as server:
        server.answers.update({f"/{name}": [file_answer(content)] for name, content in contents.items()})
        arguments = ["data", "fetch", "mnist", "--root", str(tmp_path / "root"), "--mirror", server.address]
        first, second = (CliRunner().invoke(main, arguments) for _ in range(2))
        assert (first.exit_code, second.exit_code) == (0, 0), first.output
        assert len(server.requests) == 4
    assert first.stdout.count(": fetched\n") == second.stdout.count(": was there\n") == 4
    assert "remove it" not in second.stderr
    assert len(open_source(Data(name="mnist"), "train", str(tmp_path / "root"))) == 20


def test_what_stands_in_front_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacked files are read first, wherever they lie: others than the official ones are to be removed."""
    monkeypatch.setattr(data_fetch, "MNIST", OfficialSet((), MNIST.unpacked, (), MNIST.folders))
    write_mnist(tmp_path / "MNIST" / "raw")
    result = CliRunner().invoke(main, ["data", "fetch", "mnist", "--root", str(tmp_path)])
    assert result.exit_code == 0
    first = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    assert f"{first} is read in place of what was fetched, and is not the official file: remove it" in result.stderr
    assert result.stderr.count("remove it") == 4


def test_another_servers_files_are_not_taken_for_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it sends under their names."""
    monkeypatch.setattr(fetch, "PAUSE_S", 0.0)
    with file_server() as server:
        server.answers["/train-images-idx3-ubyte.gz"] = [file_answer(b"<html>please accept our cookies</html>")]
        result = CliRunner().invoke(
            main, ["data", "fetch", "mnist", "--root", str(tmp_path / "root"), "--mirror", server.address]
        )
    assert result.exit_code == 1
    assert "38 bytes came, the file has 9,912,422" in str(result.output)
    assert not list((tmp_path / "root").glob("*ubyte*"))


def test_names_are_those_that_are_read() -> None:
    """Of CIFAR-10 the binary version's archive, of MNIST both splits' images and labels."""
    assert [file.name for file in CIFAR10.files] == [ARCHIVE]
    expected = {f"{stem}-{kind}-ubyte.gz" for stem in STEMS.values() for kind in ("images-idx3", "labels-idx1")}
    assert {file.name for file in MNIST.files} == expected
