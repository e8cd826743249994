"""Which runs trained on other data than their name says: digits that stand in for a data set, files that are not official."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcddp.analysis.runs.run import Run
from hpcddp.core.catalog import DIGITS
from hpcddp.core.text import count


def data_notes(runs: Sequence[Run]) -> Iterator[str]:
    """One note for each stand-in, and for each data set with other files: rates are of images of that shape."""
    counting = [run for run in runs if run.state == "counts" and run.point and run.trains]
    for stand_in, meant in (("digits", "CIFAR-10"), ("bigmnist", "MNIST")):
        found = [run for run in counting if stand_in == _stand_in(run)]
        if found:
            total = DIGITS.train_samples + DIGITS.eval_samples
            yield (
                f"{count(len(found), 'run')} trained on scikit-learn's {total:,} handwritten digits in the shape of {meant}'s "
                f"images, not on {meant}: rates are those of images of that shape, accuracies those of digits"
            )
    for name in sorted({run.point.workload.data.name for run in counting if run.point and run.unofficial}):
        found = [run for run in counting if run.unofficial and run.point and run.point.workload.data.name == name]
        files = sorted({file for run in found for file in run.unofficial})
        more = f" and {len(files) - 1} more" if files[1:] else ""
        yield (
            f"{count(len(found), 'run')} trained on files of {name} that are not its publisher's, by size or checksum ({files[0]}"
            f"{more}): rates are those of images of that shape, accuracies those of other data"
        )


def _stand_in(run: Run) -> str | None:
    """`digits`, or `bigmnist` where it is made of as many digits as scikit-learn has; None for any other data."""
    assert run.point
    data = run.point.workload.data
    if data.name == "bigmnist" and run.epoch_samples == data.copies * len(data.variants) * DIGITS.train_samples:
        return "bigmnist"
    return "digits" if data.name == "digits" else None
