"""Notes beside the numbers; what checks say against runs, and pictures that could not be decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.analysis.verdicts.notes import WARMUP_DETECTED_FROM, staging_notes, start_notes
from hpcddp.core.attempt_records import DamagedFiles, replaced_words
from hpcddp.core.launch_record import NodeCopy, Staging
from hpcddp.core.point import Data
from hpcddp.core.schema import encode
from hpcddp.core.start_up import StartUp
from hpcddp.worker.training.stop_rule import FEWEST
from tests.analysis.synthetic import FAILED, PASSED, point, write_study
from tests.analysis.verdict_studies import measured
from tests.worker import given


def test_nothing_is_said_of_the_spread_where_no_run_counts(tmp_path: Path) -> None:
    points = [point(1, 1), point(1, 2)]
    assert find(load_study(write_study(tmp_path / "none", points))).notes == []
    rejected = measured(tmp_path / "rejected", dict.fromkeys(points, (1,)), gates=FAILED)
    assert find(load_study(rejected)).notes == []


@pytest.mark.parametrize(
    ("steps", "detected", "words"),
    [
        (98, None, "in fewer than 100 steps. Time more steps with `--set measure.steps=100`"),
        (99, None, "in the second half, if at all. Lengthen the warm-up with `--set measure.warmup_steps=100`"),
        (98, 0, None),
    ],
)
def test_a_warm_up_whose_end_was_not_seen_is_unknown(tmp_path: Path, steps: int, detected: int | None, words: str | None) -> None:
    protocol = {"stopped_by": "steps", "warmup_detected_steps": detected}
    study = measured(tmp_path / "s", {point(1, 1): [1]}, steps=steps, protocol=protocol)
    notes = [note for note in find(load_study(study)).notes if note.startswith("The end of the warm-up is unknown")]
    assert [words in note for note in notes if words] == ([True] if words else [])
    assert WARMUP_DETECTED_FROM == FEWEST


@pytest.mark.parametrize(
    ("data", "samples", "meant"),
    [
        (Data(name="digits"), 1498, "CIFAR-10"),
        (Data(name="digits"), None, "CIFAR-10"),
        (Data(name="bigmnist", copies=3, variants=("plain", "rotated")), 6 * 1498, "MNIST"),
        (Data(name="bigmnist", copies=3, variants=("plain",)), 180_000, None),
        (Data(name="bigmnist"), None, None),
        (Data(name="mnist"), 1498, None),
    ],
)
def test_digits_that_stand_in_for_another_data_set_are_told(
    tmp_path: Path, data: Data, samples: int | None, meant: str | None
) -> None:
    launch = {"data": {"name": data.name, "samples": samples}}
    study = measured(tmp_path / "s", {point(1, 1, data=data): [1, 1]}, steps=20, launch=launch)
    notes = [note for note in find(load_study(study)).notes if "handwritten digits" in note]
    begin = f"2 runs trained on scikit-learn's 1,797 handwritten digits in the shape of {meant}'s images, not on {meant}"
    assert [note.partition(". ")[0] for note in notes] == ([begin] if meant else [])


@pytest.mark.parametrize(
    ("files", "words"),
    [(["data_batch_1.bin"], "(data_batch_1.bin)"), (["a.bin", "b.bin", "c.bin"], "(a.bin and 2 more)"), ([], None), (None, None)],
)
def test_files_that_are_not_the_official_ones_are_named(tmp_path: Path, files: list[str] | None, words: str | None) -> None:
    launch = {"data": {"name": "cifar10", "unofficial": files}}
    study = measured(tmp_path / "s", {point(1, 1, data=Data(name="cifar10")): [1, 1]}, steps=20, launch=launch)
    notes = [note for note in find(load_study(study)).notes if "publisher" in note]
    expected = f"2 runs trained on files of cifar10 that are not its publisher's, by size or checksum {words}. Rates"
    assert [note[: len(expected)] for note in notes] == ([expected] if words else [])


def staged(number: int, epoch_s: float, wait_s: float | None, state: Literal["counts", "rejected"] = "counts") -> Run:
    """Of two ranks that train a million samples an epoch: 144 GB to two nodes, the slower of which reads 0.8 GB/s."""
    copies = [
        NodeCopy(host=host, folder="/tmp/x", filesystem="ext4", files=1, copied_bytes=144 * 10**9, copy_s=took_s, check_s=20.0)
        for host, took_s in (("a", 180.0), ("b", 100.0))
    ]
    return Run(
        label="n02-g1-b4",
        run=number,
        state=state,
        point=given.point(2, nodes=2),
        staging=None if wait_s is None else Staging(wait_s=wait_s, nodes=tuple(copies)),
        epoch_samples=1_000_000,
        steady_samples=1_000,
        timed_ns=round(2 * epoch_s / 1_000 * 1e9),
    )


def test_a_copy_is_said_with_its_rate() -> None:
    (said,) = staging_notes([staged(1, 50, 200), staged(2, 50, 250), staged(3, 50, 210)])
    assert said.startswith(
        "144 GB were copied to each node before 3 runs, at 800 MB/s. Ranks waited 4 min (3 min to 4 min, median "
    )
    assert list(staging_notes([staged(1, 50, None), staged(2, 50, 9, "rejected")])) == []


def test_a_copy_that_pays_has_its_number_of_epochs() -> None:
    """200 s for 25 s less an epoch: eight. None where one run without that is as fast as the slowest with."""
    runs = [staged(n, epoch_s, 200) for n, epoch_s in ((1, 50), (2, 51), (3, 49))]
    _, said = staging_notes([*runs, staged(4, 75, None), staged(5, 75, None)])
    assert said.endswith(
        "50.0 s with a copy on each node and 75.0 s without. The copy takes 3 min and pays off after 8.0 epochs."
    )
    *_, said = staging_notes([staged(1, 50, 5), staged(2, 75, None)])
    assert said.endswith("The copy takes 5 s and pays off within the first epoch.")
    _, said = staging_notes([staged(1, 50, 200), staged(2, 76, 200), staged(3, 75, None), staged(4, 80, None)])
    assert said.endswith("Runs with and without the copy overlap, so no gain is visible.")


def test_one_sentence_on_the_start_of_all_runs() -> None:
    def said(*first_steps_s: float, met_s: float = 5.0) -> list[str]:
        known = [StartUp(until_met_s=met_s, until_first_step_s=each) for each in first_steps_s]
        return list(start_notes([Run(label="p", run=n, state="counts", start_up=each) for n, each in enumerate(known)]))

    median = "The first step came 34 s after srun (30 s to 2 min, median of 3 runs). Rendezvous completed 5 s after srun."
    assert said(34, 30, 125) == [median]
    assert said(34) == ["The first step came 34 s after srun. Rendezvous completed 5 s after srun."]
    rejected = Run(label="p", run=9, state="rejected", start_up=StartUp(until_met_s=1, until_first_step_s=2))
    assert list(start_notes([rejected, Run(label="p", run=1, state="counts")])) == []
    assert said(130, met_s=110)[0].endswith("2 min after srun. Imports from a parallel file system may take that long.")


NAME = "n01440764/n01440764_18.JPEG (it is no picture)"


def damaged(folder: Path, **pictures: int) -> Findings:
    """Of two runs that each came upon so many of 10,000 pictures."""
    files = {split: DamagedFiles(pictures=many, read=10_000, first=(NAME,)) for split, many in pictures.items()}
    return find(load_study(measured(folder / "s", {point(1, 1): [1, 1]}, steps=20, end={"damaged": encode(files)})))


def test_few_damaged_pictures_are_a_note(tmp_path: Path) -> None:
    findings = damaged(tmp_path, train=9)
    (note,) = [each for each in findings.notes if "damaged" in each]
    assert note.startswith("9 of 10,000 train images that r2 of n01-g1-")
    assert f"are damaged (0.09 %, the first {NAME}). The next image of the batch replaced each. 1 more run" in note
    assert not findings.verdicts


def test_one_in_a_thousand_is_a_verdict(tmp_path: Path) -> None:
    """The worst split of the worst run stands for all; nothing of it stays a note."""
    findings = damaged(tmp_path, train=12, eval=40)
    (verdict,) = findings.verdicts
    assert (verdict.name, verdict.where, len(verdict.runs)) == ("damaged data", "in 2 runs", 2)
    assert verdict.evidence.startswith("40 of 10,000 eval images that r2 of ")
    assert "are damaged (0.4 %" in verdict.evidence
    assert not [each for each in findings.notes if "damaged" in each]


def test_status_says_how_many_were_replaced() -> None:
    files = {"train": DamagedFiles(pictures=3, read=900), "eval": DamagedFiles(pictures=1, read=50)}
    assert replaced_words(files) == "1 damaged eval picture, 3 damaged train pictures replaced"
    assert replaced_words({}) is None


@pytest.mark.parametrize("backend", ["slurm", "local"])
def test_a_hot_gpu_is_kept_off_where_slurm_places_jobs(tmp_path: Path, backend: str) -> None:
    hot = [*PASSED, {"name": "GPU clocks held", "passed": False, "evidence": "GPU 1 of r000 fell"}]
    study = measured(tmp_path / "s", {point(1, 1): [100]}, steps=20, gates=hot, launch={"backend": backend})
    (verdict,) = [each for each in find(load_study(study)).verdicts if each.name == "clock throttling"]
    assert ("slurm.exclude" in verdict.advice) == (backend == "slurm")
