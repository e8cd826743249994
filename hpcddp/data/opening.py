"""Opens the source of a point's `data`, or says what is missing and where."""

from __future__ import annotations

from hpcddp.core.catalog import dataset_facts, is_on_disk
from hpcddp.core.point import Data
from hpcddp.data.bigmnist.forms import open_bigmnist
from hpcddp.data.cifar10 import open_cifar10
from hpcddp.data.crop_flip import CroppedSource
from hpcddp.data.factories import open_own
from hpcddp.data.mnist import open_mnist
from hpcddp.data.pictures.imagenet import open_imagenet
from hpcddp.data.rgb_digits import open_digits
from hpcddp.data.roots import expand_root
from hpcddp.data.source import Source, Split
from hpcddp.data.synthetic import SyntheticSource

OFFICIAL = {"mnist": open_mnist, "cifar10": open_cifar10, "digits": open_digits}


def open_source(data: Data, split: Split, root: str | None) -> Source:
    """One split of `data` from the folder `root`, in which variables are the job's own.

    Raises UsageError for a name that is none or a factory that makes no data set, HpcddpError for what is missing or broken.
    """
    facts = dataset_facts(data)
    if facts is None:
        return open_own(data.name, None if root is None else str(expand_root(data.name, root)), split)
    if not is_on_disk(data):
        return SyntheticSource(facts, split)
    folder = expand_root(data.name, root)
    if data.name == "bigmnist":
        return open_bigmnist(data, folder, split)
    if data.name == "imagenet":
        return open_imagenet(data, folder, split)
    source = OFFICIAL[data.name](folder, split)
    return CroppedSource(source) if split == "train" and data.augment == "crop_flip" else source
