from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hpcddp.core.catalog import DATASETS
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.point import Data
from hpcddp.data import open_source
from tests.data.files import SPLITS, write_mnist

SYNTHETIC = [name for name in DATASETS if name.startswith("synthetic-")]
ON_DISK = [name for name in DATASETS if not name.startswith("synthetic-")]


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_sets_have_the_real_ones_shape_and_length(name: str) -> None:
    """As many samples and classes as the real set, needing no folder; a sample follows from its index."""
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
    """The pool repeats; a model can learn it."""
    source = open_source(Data(name="synthetic-imagenet"), "train", None)
    images, labels = source.batch(torch.arange(400))
    same = [index for index in range(1, 400) if torch.equal(images[index], images[0])]
    assert same
    assert all(labels[index] == labels[0] for index in same)


@pytest.mark.parametrize("name", ON_DISK)
def test_a_set_on_disk_needs_a_folder(name: str) -> None:
    """The error says where to set it."""
    with pytest.raises(HpcddpError, match=f"data `{name}` needs a folder: set workload.data.root"):
        open_source(Data(name=name), "train", None)


def test_variables_in_the_root_are_the_jobs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$NAME and ${NAME} are filled in where the data are read; one that is not set is named."""
    write_mnist(tmp_path / "digits")
    monkeypatch.setenv("HPCDDP_TEST_SCRATCH", str(tmp_path))
    monkeypatch.delenv("HPCDDP_TEST_UNSET", raising=False)
    for root in ("$HPCDDP_TEST_SCRATCH/digits", "${HPCDDP_TEST_SCRATCH}/digits"):
        assert len(open_source(Data(name="mnist"), "train", root)) == 20
    for root in ("$HPCDDP_TEST_UNSET/digits", "/x/${HPCDDP_TEST_UNSET}"):
        with pytest.raises(HpcddpError, match=r"data `mnist`.*\$HPCDDP_TEST_UNSET is not set"):
            open_source(Data(name="mnist"), "train", root)


def test_an_unknown_name_is_refused() -> None:
    """With the nearest known one."""
    with pytest.raises(UsageError, match="no data set `synthetic-minst`; did you mean `synthetic-mnist`"):
        open_source(Data(name="synthetic-minst"), "train", None)
