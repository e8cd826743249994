"""YAML in, complaints with their place."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from hpcddp.cluster import yamlfile
from hpcddp.cluster.yamlfile import decode_file, read_yaml
from hpcddp.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Part:
    size: int = 1


@dataclass(frozen=True, kw_only=True)
class Document:
    name: str
    part: Part = field(default_factory=Part)
    parts: tuple[Part, ...] = ()


@pytest.fixture(params=["libyaml", "pure"], autouse=True)
def _reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every rule holds with libyaml and, where PyYAML was built without it, with its own parser."""
    if request.param == "pure":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    yamlfile._loader.cache_clear()
    yield
    yamlfile._loader.cache_clear()


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "a file.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_yaml_1_2(tmp_path: Path) -> None:
    file = written(tmp_path, "time: 1:30:00\nanswer: no\nswitch: on\nzeros: 012\nrate: 1e-4\ntrue_: true\n")
    assert read_yaml(file) == {"time": "1:30:00", "answer": "no", "switch": "on", "zeros": 12, "rate": 0.0001, "true_": True}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "duplicate key"),
        ("a: [1, 2\nb: 3\n", 2, "expected"),
        ("a:\n\tb: 1\n", 2, "a tab; YAML is indented with spaces"),
        ("a: !!python/object:os.system {}\n", 1, "could not determine a constructor"),
        ("a: 1\n---\nb: 2\n", 2, "but found another document"),
        ("a: {{ account }}\n", 1, "a key is a list or a mapping"),
        ("? [a, b]\n: 1\n", 1, "a key is a list or a mapping"),
    ],
)
def test_not_valid(tmp_path: Path, text: str, line: int, says: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_yaml(file)
    assert str(caught.value).startswith(f"{file}:{line}:")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_not_readable(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a: \xff\n")
    control = tmp_path / "control.yaml"
    control.write_bytes(b"a: \x07\n")
    for file, says in (
        (tmp_path / "none.yaml", "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: Is a directory"),
        (binary, "cannot be read: it is not UTF-8 text"),
        (control, "characters are not allowed"),
    ):
        with pytest.raises(UsageError) as caught:
            read_yaml(file)
        assert str(caught.value).startswith(f"{file}: ")
        assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("name: x\npart:\n  sice: 3\n", "3:3", "unknown key `sice` in part; did you mean `size`?"),
        ("name: x\npart: {size: many}\n", "2:8", "'many' is text; a whole number is expected"),
        ("name: x\nparts:\n  - {size: 1}\n  - {size: 1.5}\n", "4:6", "1.5 is a number; a whole number is expected"),
        ("name: x\nparts:\n  - size: 1\n  - 7\n", "4:5", "7 is a whole number; a mapping is expected"),
        ("\npart: {}\n", "2:1", "`name` is missing"),
        ("", "1:1", "None is nothing; a mapping is expected"),
        ("- 1\n", "1:1", "[1] is a list; a mapping is expected"),
    ],
)
def test_complaint_names_its_place(tmp_path: Path, text: str, place: str, message: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        decode_file(Document, read_yaml(file), file)
    assert str(caught.value) == f"{file}:{place}: {message}"


def bomb(levels: int, each: int) -> str:
    """`each` ** `levels` values."""
    lines = ["schema: 1", "a0: &a0 x"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * each)}]" for n in range(1, levels + 1)]
    return "\n".join([*lines, ""])


@pytest.mark.dear
@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (bomb(9, 9), 8, "anchors and aliases expand to more than 100,000 values here"),
        (bomb(40, 2), 18, "anchors and aliases expand to more than 100,000 values here"),
        (bomb(1, 100_001), 3, "anchors and aliases expand to more than 100,000 values here"),
        ("a: 1\nb: &b [1, *b]\n", 2, "this value contains itself"),
        ("a: 1\nb: &b {c: {d: *b}}\n", 2, "this value contains itself"),
        ("a: 1\nb: " + "[" * 60 + "]" * 60, 2, "nested more than 50 deep"),
        ("a: 1\nb: " + "[" * 600 + "]" * 600, 2, "nested more than 50 deep"),
        ("a: 1\nb: " + "{c: " * 1500 + "}" * 1500, 2, "nested more than 50 deep"),
        ("a: 1\nb: " + "[" * 100_000, 2, "nested more than 50 deep"),
        ("a: 1\nb:\n  " + "- " * 100_000 + "c", 3, "nested more than 50 deep"),
        ("a: 1\n" + "".join(f"{' ' * n}b:\n" for n in range(1200)), 52, "nested more than 50 deep"),
    ],
)
def test_what_comes_to_too_much_is_refused_by_count(tmp_path: Path, text: str, line: int, says: str) -> None:
    file = written(tmp_path, text)
    begun_s = time.process_time()
    with pytest.raises(UsageError, match=says) as caught:
        read_yaml(file)
    assert str(caught.value).startswith(f"{file}:{line}:")
    assert time.process_time() - begun_s < 5  # 100,001 aliases in the parser in Python; of a bomb see the next test
    assert "write" in str(caught.value)


def test_a_bomb_takes_no_time_and_no_memory(tmp_path: Path) -> None:
    file = written(tmp_path, bomb(9, 9))
    with pytest.raises(UsageError):
        read_yaml(file)
    tracemalloc.start()
    begun_s = time.process_time()
    with pytest.raises(UsageError):
        read_yaml(file)
    assert time.process_time() - begun_s < 0.2
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_anchors_of_an_ordinary_file_are_filled_in(tmp_path: Path) -> None:
    file = written(tmp_path, "layout: &l {nodes: 1, gpus_per_node: 4}\npoints:\n" + "- *l\n" * 2000)
    assert read_yaml(file)["points"] == [{"nodes": 1, "gpus_per_node": 4}] * 2000
