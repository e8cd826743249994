"""What must hold before a run's figures count. Each gate says what it found; none of them stops the run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcddp.core.attempt_records import GateResult, GpuTelemetry
from hpcddp.core.comm_record import CommOperation
from hpcddp.core.point import Point
from hpcddp.core.text import message_size, thousands
from hpcddp.data.fingerprint import DataFingerprint
from hpcddp.worker.rank_result import EvaluatedShare, NodeShare, RankScores

OF_TRAINING = (
    "parameters agree",
    "loss is finite",
    "ranks stepped equally",
    "every epoch reshuffled",
    "no restart inside the window",
    "nodes as asked for",
)
"""Every training run has them; those that need several ranks, an evaluation, buffers or GPU clocks come where these are."""

OF_COMM = ("collectives correct", "ranks agree")

OF_SCRIPT = ("ranks stepped equally", "no restart inside the window", "nodes as asked for")
"""Of the user's own loop; parameters are compared where each rank has all of them, losses where the loop gives them."""


def expected(point: Point) -> list[str]:
    """The gates that a run of the point records if it is done; launch.json names them, so that none can be missed out."""
    if point.work == "comm":
        return [*OF_COMM]
    if point.own_loop:
        return [*OF_SCRIPT, *(["parameters agree"] if point.workload.parallel == "ddp" else [])]
    several = ["ranks see the same data", "ranks compute the same"] if point.ranks > 1 else []
    evaluated = ["evaluation counts every sample once"] if point.evaluates else []
    return [*OF_TRAINING, *several, *evaluated]


def parameters_agree(by_rank: Sequence[Mapping[str, str]]) -> GateResult:
    """`by_rank`: each rank's checksums of its parameters by when they were taken."""
    for when in by_rank[0]:
        sums = [rank_sums.get(when) for rank_sums in by_rank]
        odd = [rank for rank, found in enumerate(sums) if found != sums[0]]
        if odd:
            those = f"{len(odd)} of {len(sums)} ranks differ from rank 0"
            return _gate("parameters agree", False, f"{when} {those}: rank {odd[0]} has {sums[odd[0]]}, rank 0 {sums[0]}")
    sums_by_time = "; ".join(f"{when} {value}" for when, value in by_rank[0].items())
    return _gate("parameters agree", True, f"{len(by_rank)} rank(s), SHA-256 {sums_by_time}")


ROUNDING = {"fp64": 1e-12, "fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}
"""Share of the largest score by which ranks may differ: a thousand times the last bit of the sums (fp64, fp32), or of what layers
hand on, times the root of some tens of layers (TF32 and fp16 10 bits, bf16 7). Equal hardware gives equal bits, but for sums that
another number of threads adds up in another order."""


def ranks_compute_the_same(ranks: Sequence[RankScores], arithmetic: str, differing: str | None = None) -> GateResult:
    """`ranks`: what each one's model computes from the same pictures. `arithmetic`: a key of ROUNDING. `differing`: parameters or
    buffers, where these differ by rank already, and the scores with them."""
    name, first, most = "ranks compute the same", ranks[0], 0.0
    if differing:
        return _gate(name, True, f"not compared: {differing} differ")
    for when in first.forward:
        errors = [(rank, each.forward[when].error) for rank, each in enumerate(ranks)]
        for rank, error in errors:
            if error:
                return _gate(name, True, f"not compared: on rank {rank} the model gave {error}")
        values = [each.forward[when].values for each in ranks]
        apart, rank = max((_apart(each, values[0]), rank) for rank, each in enumerate(values))
        if apart > ROUNDING[arithmetic]:
            where = f"{when} rank {rank} on {ranks[rank].host} computes other scores than rank 0 from the same 2 images"
            saw = f"{100 * apart:.3g} % apart, but only {100 * ROUNDING[arithmetic]:.2g} % may be rounding"
            return _gate(name, False, f"{where}: {saw}, though parameters and buffers agree")
        most = max(most, apart)
    whens = " and ".join(first.forward)
    return _gate(name, True, f"2 images {whens}, scores at most {100 * most:.2g} % apart on {len(ranks)} ranks")


def _apart(values: Sequence[float], others: Sequence[float]) -> float:
    """The largest difference / the largest of `others`; infinite where they cannot be compared."""
    if [*map(repr, values)] == [*map(repr, others)]:  # what is no number may be none on every rank
        return 0.0
    if len(values) != len(others) or not all(map(math.isfinite, [*values, *others])):
        return math.inf
    largest = max(map(abs, others))
    return max(abs(one - other) for one, other in zip(values, others, strict=True)) / largest if largest else math.inf


def loss_is_finite(by_rank: Sequence[bool]) -> GateResult:
    """`by_rank`: whether each rank's losses were all finite."""
    odd = [rank for rank, finite in enumerate(by_rank) if not finite]
    if odd:
        those = f"{len(odd)} of {len(by_rank)} ranks"
        return _gate("loss is finite", False, f"rank {odd[0]} had a loss that is infinite or not a number ({those})")
    return _gate("loss is finite", True, f"every step of {len(by_rank)} rank(s)")


def ranks_stepped_equally(by_rank: Sequence[int], planned: int) -> GateResult:
    """`by_rank`: steps whose row each rank wrote."""
    odd = [rank for rank, steps in enumerate(by_rank) if steps != planned]
    if odd:
        return _gate("ranks stepped equally", False, f"rank {odd[0]} made {by_rank[odd[0]]} of {planned} steps")
    return _gate("ranks stepped equally", True, f"{planned} steps on each of {len(by_rank)} rank(s)")


def samples_as_declared(by_rank: Sequence[Sequence[int] | None], declared: int) -> GateResult:
    """`by_rank`: the least and the most samples of a step, None where unknown; a script declares those of a full one."""
    name = "samples as declared"
    for rank, (least, most) in ((rank, found) for rank, found in enumerate(by_rank) if found):
        if not least <= declared <= most:
            has = f"{least}" if least == most else f"{least} to {most}"
            words = f"rank {rank} has {has} samples in a step by its batches, but the script declares {declared}"
            return _gate(name, False, f"{words}: correct samples_per_step, or count samples with steps(loader, samples=function)")
    return _gate(name, True, f"{declared} in a full step of a rank")


def every_epoch_reshuffled(repeated_by_rank: Sequence[int | None], epochs: int) -> GateResult:
    """`repeated_by_rank`: the first epoch that began with the same batches as the one before it, None for no such epoch."""
    for rank, epoch in enumerate(repeated_by_rank):
        if epoch is not None:
            return _gate(
                "every epoch reshuffled", False, f"rank {rank} began epoch {epoch} with the batches of epoch {epoch - 1}"
            )
    return _gate("every epoch reshuffled", True, f"{epochs} epoch(s) begun, no order twice in a row")


SPLITS = {"train": "training", "eval": "evaluation"}


@dataclass(frozen=True, kw_only=True)
class RankData:
    """The data that one rank sees."""

    host: str
    splits: Mapping[str, DataFingerprint]
    """By key of SPLITS; evaluation data where they are evaluated."""


def same_data(ranks: Sequence[RankData]) -> GateResult:
    """Whether all ranks see the same data."""
    name, first = "ranks see the same data", ranks[0]
    comparable = {split: _comparable([each.splits[split] for each in ranks]) for split in SPLITS if split in first.splits}
    odd = [rank for rank, each in enumerate(ranks) if _data_difference(each, first, comparable)]
    if odd:
        those = f"{len(odd)} of {len(ranks)} ranks differ from rank 0 on {first.host}"
        how = _data_difference(ranks[odd[0]], first, comparable)
        return _gate(name, False, f"{those}: rank {odd[0]} on {ranks[odd[0]].host} {how}")
    lengths = " and ".join(f"{thousands(first.splits[split].samples)} {SPLITS[split]} samples" for split in comparable)
    alike = f"{len(first.splits['train'].places)} of them equal, in one order"
    drawn = any("image" not in parts for parts in comparable.values())
    not_compared = "; images are drawn at random and were not compared" if drawn else ""
    return _gate(name, True, f"{lengths} on each of {len(ranks)} rank(s), {alike}{not_compared}")


def _checksums(data: DataFingerprint) -> dict[str, Sequence[int] | None]:
    return {"label": data.labels, "image": data.images}


def _comparable(fingerprints: Sequence[DataFingerprint]) -> list[str]:
    """`label` and `image`, if every rank reads the same when it reads twice."""
    return [part for part in ("label", "image") if all(_checksums(each)[part] is not None for each in fingerprints)]


def _data_difference(here: RankData, first: RankData, comparable: Mapping[str, Sequence[str]]) -> str | None:
    """What a rank has that rank 0 has not, as the end of a sentence."""
    for split, parts in comparable.items():
        own, other, word = here.splits[split], first.splits[split], SPLITS[split]
        if own.samples != other.samples:
            return f"has {thousands(own.samples)} {word} samples, rank 0 {thousands(other.samples)}"
        if own.order != other.order:
            return f"reads the {word} samples in another order (CRC {own.order:08x}, rank 0 {other.order:08x})"
        for part in parts:
            sums = zip(own.places, _checksums(own)[part] or (), _checksums(other)[part] or (), strict=True)
            for place, crc, other_crc in sums:
                if crc != other_crc:
                    found = f"its {part} has the CRC {crc:08x}, rank 0's {other_crc:08x}"
                    return f"has another {word} sample {place} ({found}): other files, or the same files in another order"
    return None


def evaluation_is_exact(shares: Sequence[EvaluatedShare], samples: int) -> GateResult:
    """Whether the ranks' shares, by rank, are each of `samples` samples once."""
    name, counted, expected = "evaluation counts every sample once", sum(each.samples for each in shares), 0
    for rank, each in enumerate(shares):
        due = each.end - each.first
        if each.samples != due:
            saw = f"rank {rank} evaluated {each.samples} of its {due} samples; all ranks {counted} of {samples}"
            return _gate(name, False, saw)
        wrong = each.first if each.first != expected else each.mismatch
        if wrong is not None:
            return _gate(name, False, f"rank {rank} did not evaluate sample {wrong} in its place")
        expected = each.end
    if expected != samples:
        return _gate(name, False, f"the ranks' shares end at sample {expected} of {samples}")
    return _gate(name, True, f"{counted} of {samples} samples: {_spread([each.samples for each in shares])}")


def buffers_agree(by_rank: Sequence[str | None]) -> GateResult:
    """`by_rank`: each rank's checksum of the model's buffers at the entry of the next forward, after DDP's broadcast."""
    odd = [rank for rank, found in enumerate(by_rank) if found != by_rank[0]]
    if odd:
        those = f"{len(odd)} of {len(by_rank)} ranks differ from rank 0"
        saw = f"{those} as the next forward begins: rank {odd[0]} has {by_rank[odd[0]]}, rank 0 {by_rank[0]}"
        return _gate("buffers agree", False, saw)
    return _gate("buffers agree", True, f"{len(by_rank)} rank(s) as the next forward begins, SHA-256 {by_rank[0]}")


def no_restart_inside(by_rank: Sequence[str | None], steps: int) -> GateResult:
    """`by_rank`: the first place where a rank's timed rows do not follow each other (None: they do); `steps` were timed."""
    for rank, found in enumerate(by_rank):
        if found:
            return _gate("no restart inside the window", False, f"rank {rank}: {found}")
    return _gate("no restart inside the window", True, f"{steps} timed steps follow each other on each of {len(by_rank)} rank(s)")


def collectives_correct(ops: Mapping[str, CommOperation]) -> GateResult:
    """Each size says whether all ranks held what they should after one call."""
    sizes = [(op, size) for op, found in ops.items() for size in found.sizes]
    wrong = [f"{op} of {message_size(size.bytes)} on rank {size.wrong_rank}" for op, size in sizes if not size.correct]
    if wrong:
        return _gate("collectives correct", False, f"wrong in {len(wrong)} of {len(sizes)} sizes, first in {wrong[0]}")
    return _gate("collectives correct", True, f"{len(sizes)} sizes of {len(ops)} operations, bit for bit")


def ranks_agree(digests: Sequence[str]) -> GateResult:
    """`digests`: of what each rank holds to be the result."""
    odd = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if odd:
        return _gate("ranks agree", False, f"rank {odd[0]} holds other times than rank 0")
    return _gate("ranks agree", True, f"{len(digests)} rank(s) made the same calls and hold the same times")


def nodes_are_ours(nodes: Sequence[NodeShare], foreign: Sequence[float | None], exclusive: bool | None) -> GateResult:
    """`foreign`: of each node the share of its CPU time that others took in the timed steps, None if unknown. `exclusive`:
    whether Slurm was to give entire nodes; None where nobody is there to give them."""
    name, known = "nodes as asked for", [share for share in foreign if share is not None]
    others = (
        f"processes outside the job used at most {max(known):.1%} of a node's CPU time" if known else "other CPU use is unknown"
    )
    if exclusive is None:
        return _gate(name, True, f"nothing reserves {_hosts(nodes)}; {others}")
    shared = next((node for node in nodes if node.cpus is not None and node.of is not None and node.cpus < node.of), None)
    share = f"{shared.cpus} of {shared.of} CPUs of {shared.host}" if shared else f"all CPUs of {_hosts(nodes)}"
    if exclusive and shared:
        cause = "the node is shared, or the profile's physical_cores and smt differ from Slurm's"
        return _gate(name, False, f"{share}, but `layout.exclusive` requests all: {cause}; {others}")
    if not shared and any(node.cpus is None for node in nodes):
        share = f"the job's share of the CPUs of {_hosts(nodes)} is unknown"
    return _gate(name, True, f"{share}; {others}")


HARMFUL = ("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
"""Throttle reasons (of reader_process.THROTTLE) that slow a GPU down against its nature: heat, hardware, power supply."""

THROTTLED_SHARE = 0.01
"""Share of the readings that a harmful reason may have."""

CLOCK_FALL = 0.1
"""How far a GPU under its power cap may fall from the first to the last quarter of the timed steps, as a share."""


def gpu_clocks_held(gpus: Sequence[tuple[str, GpuTelemetry]]) -> GateResult:
    """`gpus`: each with its host. Many always run at their power cap: no fault while clocks do not fall as steps are timed."""
    name, capped = "GPU clocks held", 0.0
    for host, gpu in gpus:
        where, shares = f"GPU {gpu.gpu} of {host}", gpu.throttle or {}
        for reason in HARMFUL:
            if shares.get(reason, 0.0) > THROTTLED_SHARE:
                return _gate(name, False, f"{where}: {reason} in {shares[reason]:.0%} of the readings")
        begin, end, cap = gpu.sm_mhz_begin, gpu.sm_mhz_end, shares.get("sw_power_cap", 0.0)
        if cap > THROTTLED_SHARE and begin and end is not None and end < (1 - CLOCK_FALL) * begin:
            return _gate(
                name, False, f"{where} fell from {begin:.0f} to {end:.0f} MHz at its power cap ({cap:.0%} of the readings)"
            )
        capped = max(capped, cap)
    mhz = [gpu.sm_mhz_median for _, gpu in gpus if gpu.sm_mhz_median is not None]
    clocks = f"median clocks {min(mhz):.0f} to {max(mhz):.0f} MHz" if mhz else "clocks unknown"
    read = f"{sum(1 for _, gpu in gpus if gpu.throttle is not None)} of {len(gpus)} GPU(s) read"
    return _gate(name, True, f"{read}, {clocks}, power capped in at most {capped:.0%} of the readings")


def _hosts(nodes: Sequence[NodeShare]) -> str:
    return nodes[0].host if len(nodes) == 1 else f"{len(nodes)} nodes"


def _spread(numbers: Sequence[int]) -> str:
    return f"{numbers[0]} by rank 0" if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)} by each of {len(numbers)} ranks"


def _gate(name: str, passed: bool, evidence: str) -> GateResult:
    return GateResult(name=name, passed=passed, evidence=evidence)
