"""What a run leaves on disk, before it has run."""

from __future__ import annotations

from dataclasses import replace

from hpcddp.core.point import Data, Layout, Measure, Point, Workload
from hpcddp.sweep.disk_usage import EPOCH_ROW_BYTES, STEP_ROW_BYTES, run_bytes, run_files, run_steps

EPOCH = Point(
    cluster="local",
    workload=Workload(model="mnist-cnn", data=Data(name="mnist"), batch_per_gpu=32),
    measure=Measure(warmup_steps=10, telemetry_hz=0.0),
    work="epoch",
)


def test_a_training_has_the_steps_of_its_epochs_and_a_file_of_them() -> None:
    """Three epochs are three times as many steps as one, and a row each beside them."""
    training = replace(EPOCH, work="train", measure=replace(EPOCH.measure, epochs=3))
    assert (run_steps(EPOCH), run_steps(training)) == (1875, 5625)
    assert run_files(training) == run_files(EPOCH) + 1
    assert run_bytes(training, 30) - run_bytes(EPOCH, 30) == 2 * 1875 * STEP_ROW_BYTES + 3 * EPOCH_ROW_BYTES


def test_a_checkpoint_of_shards_has_a_file_for_each_rank_of_a_copy() -> None:
    """Beside that of what all ranks have; at most three checkpoints are there."""
    layout = Layout(nodes=2, gpus_per_node=4)
    workload = EPOCH.workload
    for chosen, shards in ((workload, 0), (replace(workload, parallel="fsdp"), 8), (replace(workload, parallel="hsdp"), 4)):
        without = replace(EPOCH, workload=chosen, layout=layout)
        resumed = replace(without, measure=replace(without.measure, resume=True))
        assert run_files(resumed) - run_files(without) == 3 * (1 + shards)
