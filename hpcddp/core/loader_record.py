"""What end.json says of a run's loaders. For Python 3.10, without libraries."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpcddp.core.schema import Count, NonNegative, Positive, added_later

READS = 4096
"""Bytes a batch from which on files are read: the clock itself reads some 400 of /proc, a batch of 32 MNIST digits has 25,088."""


@dataclass(frozen=True, kw_only=True)
class LoaderTimes:
    """Times of all ranks' loaders while timed steps were made, summed; None is unknown."""

    workers: Count
    """Processes that load for one rank; 0: the rank loads its own."""
    samples_per_s: NonNegative
    """What all loaders give together when asked for nothing else: of each rank the samples read over `read_s` and `hand_over_s`,
    times its processes, but no more than the rank can take (`receive_s`)."""
    samples: Positive = field(metadata={"merge": "sum"})
    """Read, some of them for steps that were never made."""
    batches: Positive = field(metadata={"merge": "sum"})
    read_s: NonNegative = field(metadata={"merge": "sum"})
    """In the calls that read a batch."""
    compute_s: NonNegative = field(metadata={"merge": "sum"})
    """Of that on a processor: decoding, cutting, copying."""
    processor_wait_s: NonNegative | None = field(default=None, metadata={"merge": "sum"})
    """Of that waiting for a free processor; None where the kernel does not say."""
    hand_over_s: NonNegative = field(default=0.0, metadata={"merge": "sum"})
    """Processor time of the processes between two such calls, for passing batches on."""
    receive_s: NonNegative = field(default=0.0, metadata={"merge": "sum"})
    """Processor time of the ranks for taking batches from their processes."""
    read_bytes: Count | None = added_later(None, merge="sum")
    """Of files, in the calls that read batches; None where the kernel does not say."""
    prefetch_cut: str | None = added_later(None)
    """Why loader processes read fewer batches ahead than the usual two, on the first rank where they do."""

    @property
    def storage_wait_s(self) -> float | None:
        """Of `read_s` what is neither: waiting for files, or for anything else (`waits_for_files`)."""
        if self.processor_wait_s is None:
            return None
        return max(0.0, self.read_s - self.compute_s - self.processor_wait_s)

    @property
    def waits_for_files(self) -> bool:
        """Whether files were read at all, as far as that is known; a batch of none has read the kernel's own accounts."""
        return self.read_bytes is None or self.read_bytes >= READS * self.batches
