"""Accuracy on the complete evaluation set: every sample once, whatever the number of ranks.

Whether a rank evaluates the samples of its own share: a few are compared with what the source has at their index.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import nn

from hpcddp.core.attempt_records import EvaluationResult, GateResult
from hpcddp.core.point import Workload
from hpcddp.data import Batch, Source, eval_batches
from hpcddp.data.loading import read_batch
from hpcddp.data.sampling import Share, eval_range
from hpcddp.data.source import to_bytes
from hpcddp.worker import gates
from hpcddp.worker.barriers import evaluation_barrier
from hpcddp.worker.rank_result import EvaluatedShare, EvaluationSums
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.training.feeds import loader_room_bytes
from hpcddp.worker.training.inputs import to_device
from hpcddp.worker.training.trainer import Trainer


class EvalWatch:
    """`due`: the indices of this rank's share, in the order in which its batches bring them."""

    PROBES = 8

    def __init__(self, due: range) -> None:
        last = len(due) - 1
        self._due = due
        self._probes = sorted({last * probe // (self.PROBES - 1) for probe in range(self.PROBES)}) if due else []
        self._crcs: dict[int, tuple[int, int]] = {}

    def passing(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches; stores a CRC of each probed sample."""
        begin = 0
        for batch in batches:
            end = begin + len(batch[1])
            self._crcs |= {probe: _crc(batch, probe - begin) for probe in self._probes if begin <= probe < end}
            begin = end
            yield batch

    def mismatch(self, source: Source) -> int | None:
        """The first probed index in whose place something else came, or nothing; None where all are as the source has them.

        A user's source may draw its images at random even for evaluation: then only its labels are compared.
        """
        for probe in self._probes:
            index = self._due[probe]
            once, again = (_crc(read_batch(source, torch.tensor([index]), "eval"), 0) for _ in range(2))
            served = self._crcs.get(probe)
            if served is None or served[0] != once[0] or (served[1] != once[1] == again[1]):
                return index
        return None


def _crc(batch: Batch, place: int) -> tuple[int, int]:
    """Of the label and of the image."""
    images, labels = batch
    return zlib.crc32(to_bytes(labels[place])), zlib.crc32(to_bytes(images[place]))


Evaluation = tuple[EvaluationResult, GateResult]
"""Counts of the complete set, and whether they are of each sample once."""


class EvaluationCut(Exception):
    """A rank was to stop before it had evaluated its share; raised on all ranks."""


def evaluate(  # noqa: PLR0913 - what is evaluated, with what, and until when
    workload: Workload,
    source: Source,
    trainer: Trainer,
    group: ProcessGroup,
    key: str = "evaluation",
    *,
    stops: Callable[[], bool] | None = None,
) -> Evaluation | None:
    """All ranks call it; on rank 0 the counts of the complete set with their gate, None elsewhere. `key` serves once.

    `stops`: whether this rank is to stop, asked for each batch; then EvaluationCut is raised.
    """
    share = Share(workload.batch_per_gpu, group.rank.rank, group.rank.world)
    due = eval_range(len(source), share)
    watch = EvalWatch(due)
    workers = workload.loader_workers
    room_bytes = loader_room_bytes(group.rank.ranks_per_node) if workers else None
    batches = eval_batches(
        source, batch_size=share.batch_size, rank=share.rank, ranks=share.ranks, workers=workers, room_bytes=room_bytes
    )
    wanted = watch.passing(batches)
    found = evaluate_share(trainer, itertools.takewhile(lambda _: not stops(), wanted) if stops else wanted)
    if trainer.sharding:
        _gather_with_others(trainer, source, share)
    is_cut = stops is not None and stops() and found.samples < len(due)
    if not is_cut:
        evaluation_barrier(group, key, found.samples, len(due))
    if stops and group.share(f"cut of {key}", any(group.gather(f"{key} is cut", is_cut))):
        raise EvaluationCut
    own = EvaluatedShare(**vars(found), first=due.start, end=due.stop, mismatch=watch.mismatch(source))
    shares = group.gather_records(key, own)
    return (combine(shares), gates.evaluation_is_exact(shares, len(source))) if shares else None


def evaluate_share(trainer: Trainer, batches: Iterable[Batch]) -> EvaluationSums:
    """This rank's sums over its batches.

    The model itself is called, not its DDP wrapper: ranks may have different numbers of batches and must not wait for each
    other. BatchNorm's statistics are rank 0's for all, as DDP has them before each step.
    """
    for buffer in trainer.module.buffers():
        dist.broadcast(buffer, 0)
    trainer.module.eval()
    samples, sums = 0, torch.zeros(2, dtype=torch.float64, device=trainer.device)
    with torch.no_grad():
        for batch in batches:
            sums += _correct_and_loss(trainer, to_device(batch, trainer.device))
            samples += len(batch[1])
    correct, loss_sum = sums.tolist()
    return EvaluationSums(samples=samples, correct=int(correct), loss_sum=loss_sum)


def _gather_with_others(trainer: Trainer, source: Source, share: Share) -> None:
    """Where ranks gather parameters in each forward: one that counts for nothing for each batch that another has more."""
    own, most = len(eval_range(len(source), share)), math.ceil(len(source) / share.ranks)
    missing = math.ceil(most / share.batch_size) - math.ceil(own / share.batch_size)
    with torch.no_grad():
        for _ in range(missing):
            _correct_and_loss(trainer, to_device(source.batch(torch.tensor([0])), trainer.device))
    if trainer.sharding:
        trainer.sharding.reshard()


def combine(shares: Sequence[EvaluationSums]) -> EvaluationResult:
    """Over all ranks; the mean loss is None where it is infinite or no number, or nothing was counted."""
    samples, correct = sum(share.samples for share in shares), sum(share.correct for share in shares)
    loss_sum = sum(share.loss_sum for share in shares)
    loss = loss_sum / samples if samples and math.isfinite(loss_sum) else None
    return EvaluationResult(samples=samples, correct=correct, loss=loss)


def _correct_and_loss(trainer: Trainer, batch: Batch) -> torch.Tensor:
    images, labels = batch
    with trainer.autocast():
        scores = trainer.module(trainer.normalize(images))
    correct = (scores.argmax(dim=1) == labels).sum()
    loss = nn.functional.cross_entropy(scores.double(), labels, reduction="sum")
    return torch.stack((correct.double(), loss))
