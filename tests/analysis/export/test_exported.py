"""What the readers of TensorBoard and Weights & Biases find in what was exported for them."""

from __future__ import annotations

import importlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.export.exported import exported
from hpcddp.analysis.export.targets import write_tensorboard
from hpcddp.analysis.util.files import library
from hpcddp.core.errors import HpcddpError
from hpcddp.core.run_root import Study
from tests.analysis.study.test_accuracy import falling, sized, training, trainings
from tests.analysis.study.test_accuracy import study as accurate_study
from tests.analysis.synthetic import FAILED, MS, Recorded, point, write_run, write_study

POINTS = (point(1, 1), point(1, 2))
BAD = "check `equal steps`: rank 1 made 4 of 6 steps"
STEP_S = [0.075, 0.0095, 0.0115, 0.0135, 0.0155, 0.0175]
"""Of rank 1, the slower one, 0.5 ms less; the first is the warm-up's."""

Curve = list[tuple[int, float]]


@dataclass(frozen=True)
class Read:
    """A run as a target's own reader has it."""

    params: Mapping[str, str]
    tags: str
    summary: Mapping[str, float]
    step_s: Curve
    samples_per_s: Curve
    loss: Curve
    ended_unix_s: float


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """1x1 has one run that counts and one that is not there; of 1x2 one counts and one is rejected."""
    study = write_study(tmp_path_factory.mktemp("runs") / "mine", POINTS, repeat=2)

    def step_ns(rank: int, step: int) -> int:
        return (8 + 2 * step) * MS - (1 - rank) * MS

    write_run(study, POINTS[0], Recorded(step_ns=step_ns))
    gpus = [{"gpu": gpu, "readings": 9, "util_percent_mean": 90.0 + gpu, "power_w_mean": 250.0} for gpu in (0, 1)]
    telemetry = {"nodes": [{"host": "r000", "readings": 9, "cpu_job_share": 0.25, "gpus": gpus}]}
    write_run(study, POINTS[1], Recorded(step_ns=step_ns, end={"telemetry": telemetry}))
    write_run(study, POINTS[1], Recorded(step_ns=step_ns, gates=FAILED), 2)
    return study


def read_tensorboard(folder: Path) -> dict[str, Read]:
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    metadata = importlib.import_module("tensorboard.plugins.hparams.metadata")
    plugin_data = importlib.import_module("tensorboard.plugins.hparams.plugin_data_pb2")
    found = {}
    for file in folder.rglob("events.out.tfevents.*"):
        events = accumulator.EventAccumulator(str(file.parent), size_guidance={"scalars": 0}).Reload()
        curves = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        start = plugin_data.HParamsPluginData.FromString(
            events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
        ).session_start_info
        values = {key: getattr(value, str(value.WhichOneof("kind"))) for key, value in start.hparams.items()}
        integers = {key: int(value) for key, value in values.items() if isinstance(value, float) and value.is_integer()}
        found[f"{file.parent.parent.name} {file.parent.name}"] = Read(
            params={key: str(value) for key, value in {**values, **integers}.items()},
            tags=events.Tensors("tags")[0].tensor_proto.string_val[0].decode(),
            summary={tag.removeprefix("run/"): curve[0][1] for tag, curve in curves.items() if tag.startswith("run/")},
            step_s=curves["step_s"],
            samples_per_s=curves["samples_per_s"],
            loss=curves["loss"],
            ended_unix_s=events.Scalars("step_s")[-1].wall_time,
        )
    return found


def wandb_records(data: bytes) -> Iterator[bytes]:
    """The protobufs of a .wandb file, which the library reads in Go only: after a header of 7 bytes, the log format of LevelDB
    (blocks of 32 KiB; checksum, length and kind of each part: whole, first, middle, last).
    """
    assert data[:4] == b":W&B"
    at, record = 7, b""
    while at + 7 <= len(data):
        if 0x8000 - at % 0x8000 < 7:
            at += 0x8000 - at % 0x8000
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        record, at = record + data[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def read_wandb(folder: Path) -> dict[str, Read]:
    proto, found = importlib.import_module("wandb.proto.wandb_internal_pb2"), {}
    for file in folder.glob("wandb/offline-run-*/run-*.wandb"):
        records = [proto.Record.FromString(data) for data in wandb_records(file.read_bytes())]
        (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
        config, summary = _json(run.config.update), dict[str, Any]()
        rows = []
        for record in records:
            config |= _json(record.config.update)
            summary |= _json(record.summary.update)
            rows += [_json(record.history.item)] if record.HasField("history") else []
        tags = config.pop("tags")
        found[run.display_name] = Read(
            params={key: str(value) for key, value in config.items() if "." in key or key in ("cluster", "device", "work")},
            tags=json.dumps(tags) + run.notes + "".join(run.tags),
            summary={key.removeprefix("run/"): value for key, value in summary.items() if key.startswith("run/")},
            **{name: [(row["_step"], row[name]) for row in rows if name in row] for name in ("step_s", "samples_per_s", "loss")},
            ended_unix_s=rows[-1]["_timestamp"],
        )
    return found


def _json(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


READERS = {"tensorboard": read_tensorboard, "wandb": read_wandb}

WRITE = """
import os, sys
from pathlib import Path
from hpcddp.analysis.export.targets import write_{target} as write
from hpcddp.analysis.export.exported import exported
from hpcddp.core.run_root import Study

def refuse(event, args):
    told = event == "socket.connect" and isinstance(args[1], tuple) and args[1] or event == "socket.getaddrinfo" and args
    if told and told[0] not in ("localhost", "127.0.0.1", "::1"):
        os._exit(9)

sys.addaudithook(refuse)
print(write([exported(Study(Path(sys.argv[1])))], Path(sys.argv[2])))
"""


@dataclass(frozen=True)
class Written:
    """By a process of its own, whose home, temporary and working folders were empty."""

    target: str
    out: Path
    elsewhere: Path
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module", params=READERS)
def written(request: pytest.FixtureRequest, study: Study, tmp_path_factory: pytest.TempPathFactory) -> Written:
    place = tmp_path_factory.mktemp(request.param)
    folders = {name: place / "elsewhere" / name for name in ("HOME", "TMPDIR", "here")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    paths = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ}
    command = [sys.executable, "-c", WRITE.format(target=request.param), str(study.folder), str(place / "out")]
    environment = {**paths, "HOME": str(folders["HOME"]), "TMPDIR": str(folders["TMPDIR"]), "WANDB_MODE": "online"}
    done = subprocess.run(command, cwd=folders["here"], env=environment, capture_output=True, text=True, check=False)
    return Written(request.param, place / "out", place / "elsewhere", done)


@pytest.mark.dear
@pytest.mark.filterwarnings("ignore")  # what the libraries warn of is theirs
def test_a_reader_finds_points_steps_means_and_readings(written: Written) -> None:
    runs = READERS[written.target](written.out)
    one, two = (each.label for each in POINTS)
    assert sorted(runs) == [f"{one} r1", f"{two} r1", f"{two} r2"]
    good, bad = runs[f"{two} r1"], runs[f"{two} r2"]
    names = ("layout.nodes", "layout.gpus_per_node", "workload.model", "cluster")
    assert [good.params[name] for name in names] == ["1", "2", "resnet18", "marconi100"]
    assert [step for step, _ in good.step_s] == list(range(6))
    assert [value for _, value in good.step_s] == pytest.approx(STEP_S)
    assert [value for _, value in good.samples_per_s] == pytest.approx([64 / step_s for step_s in STEP_S])
    assert good.loss == [(0, 2.5), (5, 0.5)]
    assert good.ended_unix_s == pytest.approx(1_700_000_000 + sum(STEP_S), abs=0.002)
    parts = ("step_s", "samples_per_s", "forward_s", "backward_s", "steady_steps", "loss_last")
    assert [good.summary[name] for name in parts] == pytest.approx([0.0135, 64 / 0.0135, 0.003375, 0.00675, 5, 0.5])
    read = ("gpu_util_percent", "gpu_power_w_mean", "cpu_job_share")
    assert [good.summary[name] for name in read] == pytest.approx([90.5, 250.0, 0.25])
    assert "gpu_util_percent" not in runs[f"{one} r1"].summary
    assert "gpu_temperature_c_peak" not in good.summary
    assert all(word in good.tags for word in ("marconi100", "env-1", "counts"))
    assert all(word in bad.tags for word in ("rejected", BAD))
    assert BAD not in good.tags


@pytest.mark.dear
def test_nothing_is_written_elsewhere_or_sent(written: Written) -> None:
    """Neither in the home folder, the one for temporary files, nor the working directory; whatever WANDB_MODE says."""
    assert (written.done.returncode, written.done.stdout) == (0, "3\n"), written.done.stderr
    assert [file for file in written.elsewhere.rglob("*") if not file.is_dir()] == []
    assert not (written.out / ".scratch").exists()


@pytest.mark.dear
def test_rows_that_cannot_be_read_leave_the_rest(study: Study, tmp_path: Path) -> None:
    broken = write_study(tmp_path / "mine", POINTS[:1])
    attempt = write_run(broken, POINTS[0], Recorded(step_ns=MS))
    (attempt / "ranks/00000.steps.csv").write_bytes(b"")
    (run,) = exported(broken).runs
    assert (run.series, run.summary.get("step_s"), run.tags["state"]) == ((), None, "rejected")
    assert run.params["workload.batch_per_gpu"] == 32


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(HpcddpError, match=r"wandb is not installed here: pip install 'hpcddp\[wandb\]'"):
        library("wandb", "wandb")


def test_names_of_any_bytes_are_names_of_nothing_else(tmp_path: Path) -> None:
    study = write_study(tmp_path / "caf\udce9 *;'", POINTS[:1], name="../../evil")
    write_run(study, POINTS[0], Recorded(step_ns=MS))
    write_tensorboard([exported(study)], tmp_path / "out")
    assert len(list((tmp_path / "out").rglob("events.*"))) == 1


def test_the_loss_of_every_step_is_exported(tmp_path: Path) -> None:
    accurate_study(tmp_path / "s", {sized(2): [9_722]}, loss=falling)
    (run,) = exported(Study(tmp_path / "s")).runs
    (loss,) = [series for series in run.series if series.name == "loss"]
    assert loss.steps == tuple(range(30))
    assert loss.values == pytest.approx([10.1 - step / 10 for step in range(30)])
    found = {name: run.summary[name] for name in ("accuracy", "eval_correct", "samples_trained", "loss_start", "loss_end")}
    assert found == pytest.approx(
        {"accuracy": 0.9722, "eval_correct": 9722, "samples_trained": 1920, "loss_start": 9.65, "loss_end": 7.65}
    )


def test_every_epoch_is_exported_at_its_last_step(tmp_path: Path) -> None:
    trainings(tmp_path / "s", {training(1): [((None, 90, 95), 10.0)]})
    (run,) = exported(Study(tmp_path / "s")).runs
    series = {each.name: each for each in run.series}
    assert (series["epoch/accuracy"].steps, series["epoch/accuracy"].values) == ((3, 5), (0.9, 0.95))
    assert (series["epoch/lr"].steps, series["epoch/train_loss"].values) == ((1, 3, 5), (1.0, 1.0, 1.0))
    steps = dict(zip(series["step_s"].steps, series["step_s"].unix_s, strict=True))
    assert series["epoch/accuracy"].unix_s == (steps[3], steps[5])
