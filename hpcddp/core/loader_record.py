"""What end.json says of a run's loaders. For Python 3.10, without libraries."""

from __future__ import annotations

from dataclasses import dataclass

from hpcddp.core.schema import Count, NonNegative, Positive, added_later


@dataclass(frozen=True, kw_only=True)
class LoaderTimes:
    """Times of all ranks' loaders while timed steps were made, summed; None is unknown."""

    workers: Count
    """Processes that load for one rank; 0: the rank loads its own."""
    samples_per_s: NonNegative
    """What all loaders give together when asked for nothing else: of each rank the samples read over `read_s` and `hand_over_s`,
    times its processes, but no more than the rank can take (`receive_s`)."""
    samples: Positive
    """Read, some of them for steps that were never made."""
    batches: Positive
    read_s: NonNegative
    """In the calls that read a batch."""
    compute_s: NonNegative
    """Of that on a processor: decoding, cutting, copying."""
    processor_wait_s: NonNegative | None = None
    """Of that waiting for a free processor; None where the kernel does not say."""
    hand_over_s: NonNegative = 0.0
    """Processor time of the processes between two such calls, for passing batches on."""
    receive_s: NonNegative = 0.0
    """Processor time of the ranks for taking batches from their processes."""
    prefetch_cut: str | None = added_later(None)
    """Why loader processes read fewer batches ahead than the usual two, on the first rank where they do."""

    @property
    def storage_wait_s(self) -> float | None:
        """Of `read_s` what is neither: waiting for files, locally or over the network."""
        if self.processor_wait_s is None:
            return None
        return max(0.0, self.read_s - self.compute_s - self.processor_wait_s)
