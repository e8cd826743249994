from __future__ import annotations

import struct
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hpcddp.core.catalog import DATASETS
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.point import Data
from hpcddp.data import open_source
from hpcddp.data.source import to_bytes
from tests.data.files import SPLITS, write_mnist

SYNTHETIC = [name for name in DATASETS if name.startswith("synthetic-")]
ON_DISK = [name for name in DATASETS if not name.startswith("synthetic-")]


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_sets_have_the_real_ones_shape_and_length(name: str) -> None:
    facts = DATASETS[name]
    for split, samples in zip(SPLITS, (facts.train_samples, facts.eval_samples), strict=True):
        source, again = (open_source(Data(name=name), split, None) for _ in range(2))
        images, labels = source.batch(torch.tensor([0, samples - 1, 0]))
        assert (len(source), source.shape, source.classes) == (samples, facts.shape, facts.classes)
        assert (source.mean, source.std) == (facts.mean, facts.std)
        assert (images.shape, images.dtype, labels.dtype) == ((3, *facts.shape), torch.uint8, torch.int64)
        assert torch.equal(images[0], images[2])
        assert not torch.equal(images[0], images[1])
        assert torch.equal(images, again.batch(torch.tensor([0, samples - 1, 0]))[0])
        assert 0 <= int(labels.min()) <= int(labels.max()) < facts.classes


def test_equal_synthetic_images_have_equal_labels() -> None:
    source = open_source(Data(name="synthetic-imagenet"), "train", None)
    images, labels = source.batch(torch.arange(400))
    same = [index for index in range(1, 400) if torch.equal(images[index], images[0])]
    assert same
    assert all(labels[index] == labels[0] for index in same)


@pytest.mark.parametrize("name", ON_DISK)
def test_a_set_on_disk_needs_a_folder(name: str) -> None:
    with pytest.raises(HpcddpError, match=f"data `{name}` needs a folder. Set workload.data.root"):
        open_source(Data(name=name), "train", None)


def test_variables_in_the_root_are_the_jobs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "digits")
    monkeypatch.setenv("HPCDDP_TEST_SCRATCH", str(tmp_path))
    monkeypatch.delenv("HPCDDP_TEST_UNSET", raising=False)
    for root in ("$HPCDDP_TEST_SCRATCH/digits", "${HPCDDP_TEST_SCRATCH}/digits"):
        assert len(open_source(Data(name="mnist"), "train", root)) == 20
    for root in ("$HPCDDP_TEST_UNSET/digits", "/x/${HPCDDP_TEST_UNSET}"):
        with pytest.raises(HpcddpError, match=r"data `mnist`.*\$HPCDDP_TEST_UNSET is not set"):
            open_source(Data(name="mnist"), "train", root)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UsageError, match="no data set `synthetic-minst`; did you mean `synthetic-mnist`"):
        open_source(Data(name="synthetic-minst"), "train", None)


MODULE = """
    import torch

    class Squares:
        classes = ["small", "large"]

        def __init__(self, root, split, dtype=torch.uint8):
            self.root, self.split, self.dtype = root, split, dtype

        def __len__(self):
            return 6 if self.split == "train" else 2

        def __getitem__(self, index):
            return torch.full((2, 3, 4), index, dtype=self.dtype), int(index > 2)

    def squares(root, split):
        return Squares(root, split)

    def stated(root, split):
        made = Squares(root, split, torch.float32)
        made.classes, made.shape, made.mean, made.std = 5, (2, 3, 4), [0.1, 0.2], [0.3, 0.4]
        return made

    def rooted(root, split):
        made = Squares(root, split)
        made.mean = (len(root), 0.0)
        return made

    def classless(root, split):
        return [(torch.zeros(1, 2, 2), 0)]

    def empty(root, split):
        return []

    def generator(root, split):
        return iter([])

    def lists(root, split):
        class Lists(list):
            classes = 2

        return Lists([([1, 2], 0)])

    def flat(root, split):
        made = Squares(root, split)
        made.shape = (9,)
        return made

    not_a_function = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Data]:
    """A data name for a function of the user's module above."""
    package = tmp_path / "hpcddp_test_shapes"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "made.py").write_text(textwrap.dedent(MODULE))
    (package / "needy.py").write_text("import hpcddp_no_such_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda name: Data(name=f"hpcddp_test_shapes.{name}")


def test_a_factorys_set_is_read_in_batches(module: Callable[[str], Data]) -> None:
    source = open_source(module("made:squares"), "train", None)
    images, labels = source.batch(torch.tensor([5, 0]))
    assert (len(source), source.shape, source.classes, source.mean, source.std) == (6, (2, 3, 4), 2, (0.0, 0.0), (1.0, 1.0))
    assert (images.shape, images.dtype, labels.dtype) == ((2, 2, 3, 4), torch.uint8, torch.int64)
    assert (images[:, 0, 0, 0].tolist(), labels.tolist()) == ([5, 0], [1, 0])
    assert len(open_source(module("made:squares"), "eval", None)) == 2


def test_a_factorys_own_statements_are_used(module: Callable[[str], Data]) -> None:
    source = open_source(module("made:stated"), "train", None)
    assert (source.classes, source.shape, source.mean, source.std) == (5, (2, 3, 4), (0.1, 0.2), (0.3, 0.4))
    assert source.batch(torch.tensor([1]))[0].dtype == torch.float32


def test_a_factory_gets_its_root_filled_in(module: Callable[[str], Data], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCDDP_TEST_FOLDER", "1234567")
    assert open_source(module("made:rooted"), "train", "/$HPCDDP_TEST_FOLDER").mean == (8, 0.0)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("made:classless", "made:classless`: the data set has no attribute `classes`"),
        ("made:empty", "made:empty` returned no samples for the split 'train' from root None"),
        ("made:generator", "made:generator` returned list_iterator, which lacks __len__"),
        ("made:lists", "sample 0 is a list; an image must be a tensor C x H x W"),
        ("made:flat", r"images have the shape \(9,\); C x H x W is expected"),
        ("made:not_a_function", r"hpcddp_test_shapes.made \(.*made.py\) has no function `not_a_function`"),
        ("made:absent", "has no function `absent`"),
        ("nowhere:squares", "no module `hpcddp_test_shapes.nowhere` on the job's PYTHONPATH"),
    ],
)
def test_what_is_no_data_set_is_said(module: Callable[[str], Data], name: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        open_source(module(name), "train", None)


def test_a_missing_dependency_of_the_users_module_keeps_its_traceback(module: Callable[[str], Data]) -> None:
    with pytest.raises(ModuleNotFoundError, match="hpcddp_no_such_dependency"):
        open_source(module("needy:squares"), "train", None)


def test_a_package_that_is_not_there_is_said() -> None:
    with pytest.raises(HpcddpError, match="no module `hpcddp_absent_package` on the job's PYTHONPATH"):
        open_source(Data(name="hpcddp_absent_package.data:make"), "train", None)


def test_elements_in_order_whatever_the_strides() -> None:
    assert to_bytes(torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).t()) == b"\x01\x03\x02\x04"
    assert to_bytes(torch.nn.Parameter(torch.tensor([1.5, -2.0]))) == struct.pack("=2f", 1.5, -2.0)
    assert to_bytes(torch.tensor(7)) == struct.pack("=q", 7)
    assert to_bytes(torch.empty(0, 3)) == b""
