"""How accurate the runs of a point are, and what their loss was: medians over runs, never of unlike amounts of training."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from hpcddp.analysis.runs.intervals import interval_rank, spread
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.effects import SEED, resampled
from hpcddp.analysis.util.wording import accuracy_words
from hpcddp.core.batch_means import CONFIDENCE

ACCURACY_COLUMNS = {
    "eval_n": "Int64",
    "accuracy": "Float64",
    "accuracy_low": "Float64",
    "accuracy_high": "Float64",
    "accuracy_interval": "string",
    "eval_correct": "Float64",
    "eval_samples": "Int64",
    "eval_loss": "Float64",
    "samples_trained": "Int64",
    "samples_trained_most": "Int64",
    "loss_n": "Int64",
    "loss_start": "Float64",
    "loss_end": "Float64",
    "loss_steps": "Int64",
}
"""Medians over the `eval_n` runs of a point that were evaluated, with and without the communication hook, which trains the same
parameters; `eval_correct` of `eval_samples` is the accuracy's exact count, half a sample where two runs are in the middle. NA
where runs counted different numbers of samples. `samples_trained` is what each of them trained; where they differ the least,
and `samples_trained_most` is the most. `loss_start` and `loss_end` are means over the first and last `loss_steps` steps, of
the `loss_n` runs of which they are known.
"""


@dataclass(frozen=True)
class Evaluated:
    """The runs of a point that were evaluated, on equally many samples; at least one."""

    shares: tuple[Fraction, ...]
    """Of each run, correct / samples."""
    samples: int
    """Of the evaluation set."""
    trained: tuple[int | None, ...]
    """Samples that each run trained before it."""

    @property
    def share(self) -> Fraction:
        """The median accuracy."""
        return statistics.median(self.shares)

    @property
    def words(self) -> str:
        """`97.22 % (9,722 of 10,000)`"""
        return accuracy_words(float(self.share), float(self.share * self.samples), self.samples)


def evaluated(runs: pd.DataFrame) -> Evaluated | None:
    """None where no run was evaluated, or runs counted different numbers of samples."""
    runs = runs[runs["evaluated"] & runs["eval_samples"].notna() & runs["eval_correct"].notna()]
    of = set(runs["eval_samples"]) - {0}
    if len(of) != 1:
        return None
    samples = int(of.pop())
    trained = tuple(None if pd.isna(each) else int(each) for each in runs["samples_trained"])
    return Evaluated(tuple(Fraction(int(correct), samples) for correct in runs["eval_correct"]), samples, trained)


def evaluated_epochs(runs: Sequence[Run]) -> dict[int, Evaluated]:
    """Samples trained -> accuracies there, of trainings: where every one of these runs was evaluated, on one evaluation set."""
    counts = [
        {each.samples: (each.correct, each.total) for each in run.epochs or () if each.correct is not None and each.total}
        for run in runs
    ]
    common = set.intersection(*map(set, counts)) if counts else set()
    found = {}
    for samples in sorted(common):
        of = {total for _, total in (each[samples] for each in counts)}
        if len(of) == 1:
            shares = tuple(Fraction(correct, total) for correct, total in (each[samples] for each in counts))
            found[samples] = Evaluated(shares, of.pop(), (samples,) * len(counts))
    return found


def accuracy(runs: pd.DataFrame) -> dict[str, Any]:
    """ACCURACY_COLUMNS of a point's runs that count."""
    found = evaluated(runs)
    return (_accuracy(found) | {"eval_loss": _median(runs.loc[runs["evaluated"], "eval_loss"])} if found else {}) | _losses(runs)


def _accuracy(found: Evaluated) -> dict[str, Any]:
    low, high, interval = spread(found.shares)
    known = [each for each in found.trained if each is not None]
    trained = sorted(known) if len(known) == len(found.trained) else [None]
    return {
        "eval_n": len(found.shares),
        "accuracy": float(found.share),
        "accuracy_low": low,
        "accuracy_high": high,
        "accuracy_interval": interval,
        "eval_correct": float(found.share * found.samples),
        "eval_samples": found.samples,
        "samples_trained": trained[0],
        "samples_trained_most": trained[-1] if trained[-1] != trained[0] else None,
    }


def _losses(runs: pd.DataFrame) -> dict[str, Any]:
    """Of the runs whose losses are means over the most steps."""
    steps = runs["loss_steps"].max()
    if pd.isna(steps):
        return {}
    alike = runs[(runs["loss_steps"] == steps).fillna(False)]
    return {"loss_n": len(alike), **{name: _median(alike[name]) for name in ("loss_start", "loss_end")}, "loss_steps": steps}


def median_losses(runs: pd.DataFrame) -> tuple[float, float, int] | None:
    """Of a point's runs, at the start and at the end, over so many steps each; None where either is unknown."""
    found = _losses(runs)
    if found.get("loss_start") is None or found.get("loss_end") is None:
        return None
    return found["loss_start"], found["loss_end"], int(found["loss_steps"])


def _median(values: pd.Series[Any]) -> float | None:
    return None if values.isna().any() or values.empty else float(values.median())


@dataclass(frozen=True)
class Gap:
    """How much the median accuracy of one group of runs is above that of another, as a share: 0.01 is one percentage point.

    `kind` says what low and high are, as of effects.Ratio.
    """

    gap: float
    low: float | None
    high: float | None
    kind: str | None

    @property
    def differs(self) -> bool | None:
        """Whether an interval leaves out 0; None where there is no interval."""
        return None if self.kind != "95 %" or self.low is None or self.high is None else not self.low <= 0 <= self.high


def gap(a: Sequence[Fraction], b: Sequence[Fraction]) -> Gap:
    """Median of `a` - median of `b`, at least one each, with the interval that effects.ratio has for a ratio."""
    middle = statistics.median(a) - statistics.median(b)
    if len(a) == len(b) == 1:
        return Gap(float(middle), None, None, None)
    if interval_rank(min(len(a), len(b))) is None:
        return Gap(float(middle), float(min(a) - max(b)), float(max(a) - min(b)), "range")
    draw = np.random.default_rng(SEED)
    drawn = np.median(resampled(a, draw), axis=1) - np.median(resampled(b, draw), axis=1)
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Gap(float(middle), min(float(low), float(middle)), max(float(high), float(middle)), f"{100 * CONFIDENCE:.0f} %")


def same_training(*groups: Evaluated) -> bool:
    """Whether all these runs trained one and the same known number of samples, and were evaluated on as many."""
    trained = {each for group in groups for each in group.trained}
    return len(trained) == 1 and None not in trained and len({group.samples for group in groups}) == 1
