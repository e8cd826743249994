"""bench-data.json: how fast a data set is loaded where it lies, as `hpcddp bench data` found it, as frozen dataclasses.

For Python 3.10, without libraries. Rates are of all ranks together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpcddp.core.point import Data, Layout
from hpcddp.core.records import SCHEMA
from hpcddp.core.schema import Count, NonNegative, Positive

Cache = Literal["cold", "warm"]
"""cold: the files' pages were dropped before. warm: the same samples had just been read."""


@dataclass(frozen=True, kw_only=True)
class LoaderRate:
    """One setting of the loaders, and what they gave when nothing else was asked of the ranks."""

    loader_workers_per_rank: Count
    batch_per_gpu: Positive
    decoder: str | None = None
    """Name and version of what decoded pictures; None where there are none."""
    form: str | None = None
    """How bigMNIST lies on disk; None of other data."""
    cache: Cache
    samples: Positive
    """Timed, of all ranks."""
    samples_per_s: NonNegative
    read_samples_per_s: NonNegative | None = None
    """The same processes with the same cache, reading pictures without decoding them; None where this is not apart."""
    decode_samples_per_s: NonNegative | None = None
    """The same processes, decoding pictures that they have in memory; None where nothing is decoded."""

    @property
    def is_of_files(self) -> bool:
        """Not where one copy of bigMNIST stays in memory."""
        return self.form in (None, "shards")


@dataclass(frozen=True, kw_only=True)
class StorageRate:
    """What the ranks read of the data's large files in pieces of 4 MiB, one after the other, in a process each."""

    bytes_per_s: NonNegative
    """With their pages dropped."""
    again_bytes_per_s: NonNegative
    """The same pieces right after, from memory."""


@dataclass(frozen=True, kw_only=True)
class DataBenchRecord:
    """bench-data.json"""

    schema: int = SCHEMA
    job: str
    restart: Count = 0
    unix_ns: Count
    """When it was over."""
    took_s: NonNegative
    cluster: str
    layout: Layout
    device: str
    """`cuda` or `cpu`: pages are pinned for the first."""
    gpu: str | None = None
    """Of the nodes, as the profile names it."""
    hosts: tuple[str, ...]
    cpus_of_ranks: tuple[Positive, ...]
    """Logical CPUs that each rank and its loader processes have: its share where several ranks may run on the same ones."""
    model: str
    """What the point trains, which is not measured here: it says what GPUs will need."""
    precision: str
    data: Data
    samples: Positive
    """In the training set."""
    bytes_per_sample: NonNegative | None = None
    """On disk, mean over those read; None where samples do not lie on a disk."""
    storage: StorageRate | None = None
    """None where there are no large files."""
    rates: tuple[LoaderRate, ...]
    problems: tuple[str, ...] = ()
    """What could not be measured, and what makes a rate doubtful, in sentences."""

    @property
    def ranks(self) -> int:
        """That loaded at the same time."""
        return len(self.cpus_of_ranks)

    def bytes_per_s(self, rate: LoaderRate) -> float | None:
        """Of files; None where none are read."""
        return rate.samples_per_s * self.bytes_per_sample if self.bytes_per_sample and rate.is_of_files else None
