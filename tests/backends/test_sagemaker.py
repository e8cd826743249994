"""Runs on SageMaker, against moto's server over HTTP: submitted, lost, found, run by the request itself, fetched and analyzed."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hpcddp.backends import sagemaker
from hpcddp.backends.base import JobState
from hpcddp.cli import main
from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.core.run_root import Study
from hpcddp.study.submission_log import latest_events
from hpcddp.worker.sagemaker import job_environment
from tests import check_golden
from tests.backends.sagemaker_standin import (
    BUCKET,
    REGION,
    SECRET,
    Answer,
    Containers,
    Fault,
    StandIn,
    cut_off,
    lose_answer,
    refuse,
)
from tests.fake_slurm import wait_for

pytestmark = pytest.mark.dear

ROOT = Path(__file__).parents[2]

PROFILE = f"""\
schema: 1
name: mine
extends: sagemaker
sagemaker:
  image: 123456789012.dkr.ecr.{REGION}.amazonaws.com/torch:2.6
  role: arn:aws:iam::123456789012:role/train
  bucket: {BUCKET}
  region: {REGION}
"""

SWEEP = """\
schema: 1
cluster: sagemaker
hold: batch_per_gpu
work: steps
baselines: false
workload: {model: mnist-cnn, data: {name: synthetic-mnist}, batch_per_gpu: 8, loader_workers_per_rank: 0}
layout: {gpus_per_node: 2, physical_cores_per_rank: 1}
points: {one: {layout.nodes: [1]}, two: {layout.nodes: [2], layout.gpus_per_node: [1]}}
measure: {steps: 6, warmup_steps: 2}
repeat: 1
device: cpu
slurm: {walltime_min: 10}
"""


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandIn]:
    """The stand-in, and a folder with a profile and a sweep of one run on one instance."""
    (tmp_path / "mine.yaml").write_text(PROFILE)
    (tmp_path / "small.yaml").write_text(SWEEP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with StandIn() as standin:
        for name, value in standin.environment.items():
            monkeypatch.setenv(name, value)
        sagemaker._client.cache_clear()
        yield standin
    sagemaker._client.cache_clear()


def hpcddp(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def submit(*words: str, code: int = 0) -> Result:
    return hpcddp("submit", "small.yaml", "--cluster", "mine.yaml", "-y", *words, code=code)


def label_of(request: dict[str, Any]) -> str:
    return str(request["Tags"][0]["Value"])


def files_of(folder: Path) -> Iterator[tuple[str, bytes]]:
    yield from ((str(file.relative_to(folder)), file.read_bytes()) for file in sorted(folder.rglob("*")) if file.is_file())


def in_process(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "hpcddp", *words]
    return subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False)


WITHOUT_BOTO3 = """\
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("boto3", "botocore"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture
def no_boto3(tmp_path: Path) -> dict[str, str]:
    """Environment of a Python without boto3."""
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked/sitecustomize.py").write_text(WITHOUT_BOTO3)
    return {"PYTHONPATH": str(tmp_path / "blocked")}


def test_run_from_submit_to_report(aws: StandIn, tmp_path: Path, no_boto3: dict[str, str]) -> None:
    """Two instances run what the request says; records are fetched and verified, and analyzed where there is no boto3."""
    submit("--group", "two")
    (request,) = aws.created()
    assert "queued" in hpcddp("status", "small", code=3).output
    assert Containers(aws, request, tmp_path / "job").run() == [0, 0]
    assert "1 run: 1 done" in hpcddp("status", "small").output

    (attempt,) = (tmp_path / "small" / label_of(request) / "r1").iterdir()
    assert attempt.name == f"{request['TrainingJobName']}.0"
    launch = json.loads((attempt / "launch.json").read_text())
    assert (launch["backend"], launch["hosts"]) == ("sagemaker", ["localhost", "algo-2"])
    assert "sagemaker" not in launch["profile"]
    assert {file.name for file in (attempt / "ranks").iterdir()} == {"00000.steps.csv", "00001.steps.csv"}

    analyzed = in_process("analyze", "small", env=no_boto3)
    assert analyzed.returncode == 0, analyzed.stderr
    assert "gates" not in analyzed.stderr
    logs = hpcddp("logs", f"small/{label_of(request)}").output
    assert "2 rank(s) on localhost, algo-2" in logs
    assert "nothing of a study" not in hpcddp("bundle", "small", "-o", "small.tar.gz").output
    (tmp_path / "small.tar").write_bytes(gzip.decompress((tmp_path / "small.tar.gz").read_bytes()))
    everything = list(files_of(tmp_path))
    assert len(everything) > 100
    assert [name for name, content in everything if SECRET.encode() in content or b"AKIAOFTHESTANDIN" in content] == []


RESUMES = (
    "--group",
    "one",
    "--set",
    "measure.resume=true",
    "--set",
    "measure.steps=300",
    "--set",
    "measure.checkpoint_every_min=0",
)


def test_interrupted_job_resumes(aws: StandIn, tmp_path: Path) -> None:
    """SIGTERM lets ranks write a checkpoint; the job resumes from it elsewhere, as its second attempt."""
    submit(*RESUMES)
    (request,) = aws.created()
    first = Containers(aws, request, tmp_path / "first")
    (container,) = first.start()
    steps = Path(
        "LABEL/r1/JOB.0/ranks/00000.steps.csv".replace("LABEL", label_of(request)).replace("JOB", request["TrainingJobName"])
    )
    wait_for(
        lambda: (found := tmp_path / "first/localhost/ml/checkpoints" / steps).is_file() and found.read_text().count("\n") > 5
    )
    first.upload()
    container.send_signal(signal.SIGTERM)
    assert container.wait(60) == 128 + signal.SIGTERM
    first.upload()
    of_another_run = request["CheckpointConfig"]["S3Uri"].removeprefix(f"s3://{BUCKET}/").replace("-r1/", "-r10/x")
    aws.client("s3").put_object(Bucket=BUCKET, Key=of_another_run, Body=b"x")
    aws.end(request["TrainingJobName"], "InProgress", "Interrupted")
    assert "Interrupted" in hpcddp("status", "small", code=3).output

    assert Containers(aws, request, tmp_path / "second").run() == [0]
    assert [each.name for each in (tmp_path / "second/localhost/ml/checkpoints").iterdir()] == [label_of(request)]
    assert "1 run: 1 done" in hpcddp("status", "small").output
    ends = [json.loads(file.read_text()) for file in sorted((tmp_path / "small" / label_of(request) / "r1").glob("*/end.json"))]
    assert [end["state"] for end in ends] == ["interrupted", "done"]
    assert not list((tmp_path / "small").glob("**/*.pt"))
    hpcddp("analyze", "small")


def test_run_without_resume_ends_at_sigterm(aws: StandIn, tmp_path: Path) -> None:
    submit("--group", "one", "--set", "measure.steps=100000")
    (request,) = aws.created()
    (container,) = Containers(aws, request, tmp_path / "job").start()
    wait_for(lambda: bool(list((tmp_path / "job").glob("**/*.steps.csv"))))
    container.send_signal(signal.SIGTERM)
    assert container.wait(60) == 128 + signal.SIGTERM


def test_next_job_of_a_run_has_its_checkpoints(aws: StandIn) -> None:
    """And a name of its own, which counts the run's jobs."""
    submit(*RESUMES)
    hpcddp("cancel", "small", "-y")
    submit(*RESUMES)
    first, second = aws.created()
    assert first["CheckpointConfig"] == second["CheckpointConfig"]
    assert [re.sub(r"-[0-9a-f]{8}$", "", each["TrainingJobName"]) for each in (first, second)] == [
        f"{label_of(first)}-r1-a{attempt}" for attempt in (1, 2)
    ]


def test_worker_that_fails_says_why(aws: StandIn, tmp_path: Path) -> None:
    submit(
        "--group",
        "one",
        "--set",
        "workload.model=vgg11",
        "--set",
        "workload.data.name=cifar10",
        "--set",
        f"workload.data.root=s3://{BUCKET}/nothing",
    )
    (request,) = aws.created()
    assert Containers(aws, request, tmp_path / "job").run() == [1]
    failed = hpcddp("status", "small", code=3).output
    assert re.search(r"failed .*\n(.*\n)*.*input/data/data", failed), failed


def kills(before: bool, late_s: float | None) -> Fault:
    """Kills the process that asks: `before` AWS does something, which it may do so much later, or not at all."""

    def fault(standin: StandIn, environ: Mapping[str, Any], go_on: Callable[[], Iterable[bytes]]) -> Iterable[bytes] | Answer:
        if not before:
            list(go_on())
        os.kill(standin.asking, signal.SIGKILL)
        if before and late_s is not None:
            time.sleep(late_s)
            list(go_on())
        return []

    return fault


def kill_and_go_on(aws: StandIn, folder: Path, faults: list[Fault]) -> None:
    """Submits runs in processes, each of which is killed at a request for a job, until one comes to its end."""
    runs = 2 * len(faults)
    words = ["submit", "small.yaml", "--cluster", "mine.yaml", "-y", "--set", f"repeat={runs}", "--group", "one"]
    for at, fault in enumerate(faults):
        aws.faults["CreateTrainingJob"] = [lambda _, __, go_on: go_on()] * (at % 2) + [fault]
        process = subprocess.Popen([sys.executable, "-m", "hpcddp", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        aws.asking = process.pid
        assert process.wait(120) == -signal.SIGKILL
    aws.faults.clear()
    assert in_process(*words).returncode == 0
    assert sorted(int(each["Tags"][1]["Value"]) for each in aws.created()) == [*range(1, runs + 1)]
    events = latest_events(Study(folder / "small")).values()
    assert sorted(str(event.job) for event in events) == sorted(aws.jobs)
    assert len(aws.uploads) == 1


def test_killed_submission_has_each_job_once(aws: StandIn, tmp_path: Path) -> None:
    kill_and_go_on(aws, tmp_path, [kills(before=False, late_s=None), kills(before=True, late_s=1.0)])


@pytest.mark.soak
def test_submission_killed_ten_times_has_each_job_once(aws: StandIn, tmp_path: Path) -> None:
    draw = random.Random(32)
    faults = [kills(before=draw.random() < 0.5, late_s=draw.choice([None, 0.1, 2.0])) for _ in range(9)]
    kill_and_go_on(aws, tmp_path, [kills(before=False, late_s=None), *faults])


QUOTA = (
    "The account-level service limit 'ml.p3.8xlarge for training job usage' is {} Instances, with current utilization of {} "
    "Instances and a request delta of 1 Instances."
)


@pytest.mark.parametrize(
    ("operation", "faults", "code", "words"),
    [
        ("CreateTrainingJob", [refuse("ThrottlingException", "Rate exceeded")] * 2, 0, "submitted    1 job"),
        ("CreateTrainingJob", [lose_answer], 0, "submitted    1 job"),
        ("CreateTrainingJob", [refuse("ThrottlingException", "Rate exceeded")] * 9, 3, "Rate exceeded (ThrottlingException)"),
        (
            "CreateTrainingJob",
            [refuse("ResourceLimitExceeded", QUOTA.format(2, 2))],
            *(3, "with current utilization of 2 Instances and a request delta of 1 Instances. (ResourceLimitExceeded)"),
        ),
        (
            "CreateTrainingJob",
            [refuse("ResourceLimitExceeded", QUOTA.format(0, 0))],
            *(5, "is 0 Instances, with current utilization of 0 Instances"),
        ),
        ("CreateTrainingJob", [refuse("AccessDeniedException", "not authorized to PassRole")], 5, "not authorized to PassRole"),
        ("CreateTrainingJob", [refuse("InternalFailure", "It failed", 500)] * 9, 1, "It failed (InternalFailure)"),
        ("PUT", [cut_off] * 9, 1, "The code cannot be uploaded to s3://my-bucket/hpcddp/code/"),
        ("PUT", [cut_off], 0, "submitted    1 job"),
        ("HEAD", [refuse("403", "Forbidden", 403)] * 9, 2, "S3 does not give access to bucket my-bucket in us-east-1"),
    ],
)
def test_what_aws_answers(  # noqa: PLR0913, PLR0917 - what is asked, what is answered, what comes of it
    aws: StandIn, monkeypatch: pytest.MonkeyPatch, operation: str, faults: list[Fault], code: int, words: str
) -> None:
    """Sentence and exit code; what is paid for is there once, and the next submission goes on."""
    monkeypatch.setattr(sagemaker, "SETTLES_S", 1)
    aws.faults[operation] = list(faults)
    assert words in submit("--group", "one", code=code).output
    assert len(aws.jobs) == (code == 0)
    if code == 5:
        assert "fix what the reason names" in hpcddp("status", "small", code=3).output
    aws.faults.clear()
    submit("--group", "one")
    assert len(aws.jobs) == 1


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("bucket: my-bucket", "bucket: other", "bucket other in us-east-1 (test `aws s3 ls s3://other`): Not Found (404)"),
        ("bucket: my-bucket", "bucket: far", "Bucket far is in eu-west-1, and sagemaker.region is us-east-1."),
        ("region: us-east-1", "region: US East (N. Virginia)", "boto3 cannot reach s3 in US East (N. Virginia): "),
        ("role: arn:aws:iam::123456789012:role/train", "role: train", "Give its ARN: `aws iam get-role --role-name train`."),
        ("  region: us-east-1\n", "", "mine does not define sagemaker.region. Write a profile that extends it and does."),
        ("region: us-east-1", "region: us-east-1\n  spots: true", "unknown key `spots` in sagemaker; did you mean `spot`?"),
    ],
)
def test_profile_that_lacks_something(aws: StandIn, old: str, new: str, words: str) -> None:
    assert old in PROFILE
    Path("mine.yaml").write_text(PROFILE.replace(old, new))
    sagemaker._client("s3", "eu-west-1").create_bucket(
        Bucket="far", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )
    assert words in submit("--group", "one", code=2).output
    assert not aws.jobs
    assert not Path("small").exists()


def test_no_credentials(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert "Unable to locate credentials" in submit("--group", "one", code=2).output
    assert not Path("small").exists()


def test_unknown_profile_of_credentials(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nope")
    assert "The config profile (nope) could not be found" in submit("--group", "one", code=2).output


def test_what_boto3_does_not_send_is_refused(aws: StandIn) -> None:
    """Its state is known: nothing was asked for."""
    Path("mine.yaml").write_text(PROFILE.replace("role: arn:aws:iam::123456789012:role/train", "role: arn:aws"))
    assert "Invalid length for parameter RoleArn" in submit("--group", "one", code=5).output
    assert "fix what the reason names" in hpcddp("status", "small", code=3).output


def test_unknown_instance_type(aws: StandIn) -> None:
    Path("mine.yaml").write_text(f"{PROFILE}node_types: {{ml.p3.9xlarge: {{gpus: 4, physical_cores: 16}}}}\n")
    output = submit("--group", "one", "--set", "layout.node_type=ml.p3.9xlarge", code=2).output
    assert "boto3 lists no instance type `ml.p3.9xlarge`; did you mean" in output
    assert not aws.jobs


def test_options_that_need_a_slurm(aws: StandIn) -> None:
    output = submit("--group", "one", "--smoke", code=2).output
    assert "--smoke needs a Slurm, and mine has none. Omit it." in output


def test_max_running(aws: StandIn) -> None:
    """SageMaker has no queue of the user's own: the rest is submitted when there is room."""
    output = submit("--set", "repeat=2", "--max-running", "1", "--group", "one", code=3).output
    assert "as --max-running allows" in output
    assert len(aws.jobs) == 1


def test_dry_run_without_boto3(aws: StandIn, no_boto3: dict[str, str]) -> None:
    done = in_process("submit", "small.yaml", "--cluster", "mine.yaml", "--group", "one", "--dry-run", env=no_boto3)
    assert done.returncode == 0
    assert "This Python has no boto3. Install it with `pip install 'hpcddp[sagemaker]'`." in done.stderr
    assert not Path("small").exists()


def test_status_without_boto3_is_unknown(aws: StandIn, no_boto3: dict[str, str]) -> None:
    submit("--group", "one")
    done = in_process("status", "small", env=no_boto3)
    assert (done.returncode, "pip install" in done.stdout) == (3, True), done.stdout


@pytest.mark.parametrize(
    ("status", "second", "reason", "words"),
    [
        ("InProgress", "Downloading", None, "queued .* Downloading"),
        ("InProgress", "Training", None, "running "),
        ("Stopped", "MaxRuntimeExceeded", None, r"it reached its time limit of 10 min \(TIMEOUT\)"),
        ("Stopped", "MaxWaitTimeExceeded", None, "there were no spot instances for it in time"),
        ("Stopped", "Stopped", None, "cancelled"),
        (
            "Failed",
            "Failed",
            "CapacityError: Unable to provision requested ML compute capacity",
            "CapacityError: Unable to provision",
        ),
    ],
)
def test_state_of_a_job(aws: StandIn, status: str, second: str, reason: str | None, words: str) -> None:
    submit("--group", "one")
    aws.end(next(iter(aws.jobs)), status, second, reason)
    assert re.search(words, hpcddp("status", "small", code=3).output)


def test_job_that_has_ended_is_asked_for_once(aws: StandIn) -> None:
    submit("--group", "one")
    aws.end(next(iter(aws.jobs)), "Stopped")
    hpcddp("status", "small", code=3)
    before = len(aws.requests)
    hpcddp("status", "small", code=3)
    assert len(aws.requests) == before


def test_only_records_of_the_job_are_fetched(aws: StandIn, tmp_path: Path) -> None:
    """Whatever else is in the bucket writes nothing here; a fetch that is cut off leaves nothing half written."""
    submit("--group", "one")
    ((job, _),), (request,) = aws.jobs.items(), aws.created()
    label, place = label_of(request), request["CheckpointConfig"]["S3Uri"].removeprefix(f"s3://{BUCKET}/").rstrip("/")
    good = [f"{label}/r1/{job}.0/{name}" for name in ("end.json", "nodes/a.json", "ranks/00000.steps.csv")]
    bad = [f"{label}/r1/{job}.0/{name}" for name in ("../../../../x", ".hidden", "checkpoints/1.pt", "a/../../x", "ranks/.x")]
    bad += [f"{label}/r1/other.0/end.json", f"{label}/r2/{job}.0/end.json", "submissions.jsonl", ".code/x", f"{label}/point.json"]
    for name in (*good, *bad):
        aws.client("s3").put_object(Bucket=BUCKET, Key=f"{place}/{name}", Body=b"{}")
    before = dict(files_of(tmp_path))
    aws.end(job, "Completed")
    aws.faults["GET"] = [
        lambda _, __, go_on: go_on(),
        lambda _, __, go_on: go_on(),
        *[refuse("InternalError", "It failed", 500)] * 9,
    ]
    state = sagemaker.SageMakerBackend(Study(tmp_path / "small")).poll({job: "name"})[job]
    assert (state.phase, "It failed" in str(state.detail)) == ("unknown", True)
    new = {name for name in dict(files_of(tmp_path)) if name not in before}
    assert new == {f"small/{good[1]}"}
    aws.faults.clear()
    assert sagemaker.SageMakerBackend(Study(tmp_path / "small")).poll({job: "name"})[job] == JobState(phase="done")
    new = {name for name in dict(files_of(tmp_path)) if name not in before}
    assert new == {*(f"small/{name}" for name in good), f"small/.jobs/{job}/ended.json"}


def test_cancel(aws: StandIn) -> None:
    """A job that has ended meanwhile is no error."""
    submit("--group", "one")
    (job,) = aws.jobs
    assert "cancelled    1 run" in hpcddp("cancel", "small", "-y").output
    assert aws.jobs[job].training_job_status == "Stopped"
    sagemaker.SageMakerBackend(Study(Path("small"))).cancel({job: "name"})
    assert "cancelled by you" in hpcddp("status", "small", code=3).output


def test_cancel_stops_what_is_live_beside_a_job_in_doubt(aws: StandIn) -> None:
    """One has ended, but its records cannot be fetched; it is named, and its state stays unknown."""
    submit("--group", "one", "--set", "repeat=2")
    ended, live = aws.jobs
    aws.end(ended, "Completed")
    aws.faults["GET"] = [refuse("AccessDenied", "Access Denied", 403)] * 9
    output = hpcddp("cancel", "small", "-y", code=1).output
    assert "cancelled    1 run\nThe state of 1 run is unknown: The records of" in output
    assert re.search(r"^Run `hpcddp cancel` again. Not cancelled: n01\S+ r1$", output, re.MULTILINE), output
    assert [aws.jobs[job].training_job_status for job in (ended, live)] == ["Completed", "Stopped"]
    assert "Slurm" not in output
    assert "The state of 2 runs is unknown" in hpcddp("cancel", "small", "-y", code=1).output
    aws.faults.clear()
    assert "Nothing to cancel" in hpcddp("cancel", "small", "-y").output


def test_cancel_does_not_need_what_an_interrupted_submission_left(aws: StandIn) -> None:
    """AWS does not say whether that one's job is there; the other one is stopped."""
    submit("--group", "one")
    (live,) = aws.jobs
    aws.faults["CreateTrainingJob"] = [refuse("InternalFailure", "It failed", 500)] * 9
    submit("--group", "one", "--set", "repeat=2", code=1)
    aws.faults["DescribeTrainingJob"] = [refuse("AccessDeniedException", "no")]
    output = hpcddp("cancel", "small", "-y", code=1).output
    assert (aws.jobs[live].training_job_status, "cancelled    1 run" in output) == ("Stopped", True)
    assert re.search(r"Not cancelled: n01\S+ r2$", output, re.MULTILINE), output


def test_cancel_tries_every_job(aws: StandIn) -> None:
    """The error names only those that may still run."""
    submit("--group", "one", "--set", "repeat=3")
    first, second, third = aws.jobs
    aws.end(third, "Stopped")
    aws.faults["StopTrainingJob"] = [refuse("AccessDeniedException", "Not yours")]
    with pytest.raises(HpcddpError) as caught:
        sagemaker.SageMakerBackend(Study(Path("small"))).cancel(dict.fromkeys((first, second, third), "name"))
    reason = f"{first}: stop_training_job of {first} failed: Not yours (AccessDeniedException)"
    assert str(caught.value) == f"1 job may still run. Run `hpcddp cancel` again.\n{reason}"
    assert [aws.jobs[job].training_job_status for job in (first, second)] == ["InProgress", "Stopped"]


@pytest.mark.parametrize("is_there", [True, False])
def test_job_that_aws_does_not_stop_is_cancelled_only_if_it_has_ended(aws: StandIn, is_there: bool) -> None:
    submit("--group", "one")
    (job,) = aws.jobs
    aws.faults["StopTrainingJob"] = [refuse("ValidationException", "no")]
    aws.faults["DescribeTrainingJob"] = [] if is_there else [refuse("ValidationException", "Requested resource not found.")]
    with pytest.raises(HpcddpError, match=f"{job}: SageMaker {'did not stop it' if is_there else 'has no job of this name'}"):
        sagemaker.SageMakerBackend(Study(Path("small"))).cancel({job: "name"})


def test_job_that_another_account_has_did_not_fail(aws: StandIn) -> None:
    """Its state is unknown until AWS finds it again; nothing of that is kept."""
    submit("--group", "one")
    (job,) = aws.jobs
    backend = sagemaker.SageMakerBackend(Study(Path("small")))
    aws.faults["DescribeTrainingJob"] = [refuse("ValidationException", "Requested resource not found.")]
    words = "SageMaker has no job of this name in us-east-1: is this the AWS account that submitted it?"
    assert backend.poll({job: "name"})[job] == JobState(phase="unknown", detail=words)
    assert backend.poll({job: "name"})[job].phase == "queued"


def test_each_poll_takes_credentials_as_they_are_then(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    submit("--group", "one")
    used = []

    def note(standin: StandIn, environ: Mapping[str, Any], go_on: Callable[[], Iterable[bytes]]) -> Iterable[bytes]:
        used.append(environ["HTTP_X_AMZ_SECURITY_TOKEN"])
        return go_on()

    backend = sagemaker.SageMakerBackend(Study(Path("small")))
    aws.faults["DescribeTrainingJob"] = [note, note]
    for token in ("old", "new"):
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
        backend.poll(dict.fromkeys(aws.jobs, "name"))
    assert used == ["old", "new"]


def test_container_runs_lines_of_activate(aws: StandIn, tmp_path: Path) -> None:
    """Before hpcddp's own path, which they cannot hide."""
    lines = ["export FROM_ACTIVATE=1  # a comment", "export PYTHONPATH=/nowhere", f"env > {tmp_path}/env"]
    Path("mine.yaml").write_text(f"{PROFILE}compute: {{activate: {json.dumps(lines)}}}\n")
    submit("--group", "one")
    (request,) = aws.created()
    assert Containers(aws, request, tmp_path / "job").run() == [0]
    assert "FROM_ACTIVATE=1\n" in (tmp_path / "env").read_text()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("modules", "[cuda]", "compute.modules of mine need Slurm. Omit them: jobs run in sagemaker.image."),
        ("container", "{image: a.sif, runtime: apptainer}", "Slurm does not start the ranks of mine."),
    ],
)
def test_environment_that_an_image_does_not_take_is_refused(aws: StandIn, key: str, value: str, words: str) -> None:
    Path("mine.yaml").write_text(f"{PROFILE}compute: {{{key}: {value}}}\n")
    assert words in submit("--group", "one", code=2).output
    assert not aws.jobs


MODEL = {"cifar10": "workload.model=vgg11", "synthetic-mnist": "workload.model=mnist-cnn"}


@pytest.mark.parametrize(
    ("name", "root", "is_said"),
    [
        ("cifar10", "/scratch/cifar10", True),
        ("cifar10", f"s3://{BUCKET}/cifar10", False),
        ("cifar10", "/opt/ml/input/data/x", False),
        ("synthetic-mnist", "/scratch/cifar10", False),
    ],
)
@pytest.mark.parametrize("of_settings", [True, False])
def test_data_root_of_this_machine_is_said_to_be_the_images(
    aws: StandIn, name: str, root: str, is_said: bool, of_settings: bool
) -> None:
    Path("config/hpcddp").mkdir(parents=True)
    Path("config/hpcddp/config.yaml").write_text(f"data_roots: {{{name}: '{root}'}}\n" if of_settings else "")
    given = [] if of_settings else ["--set", f"workload.data.root={root}"]
    output = submit("--group", "one", "--dry-run", "--set", f"workload.data.name={name}", *given, "--set", MODEL[name]).output
    assert (f"Jobs read data root `{root}` inside the image." in " ".join(output.split())) == is_said


def test_environment_of_instances() -> None:
    """By a resourceconfig.json as SageMaker writes it: the list of all hosts is sorted, those of groups are not."""
    resources = {
        **{"current_host": "algo-2", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth0"},
        "instance_groups": [{"instance_group_name": "homogeneousCluster", "hosts": ["algo-2", "algo-1"]}],
    }
    spec = JobSpec(point=Point(cluster="c", workload=Workload(model="m", data=Data(name="d")), layout=Layout()), study="/nowhere")
    found = job_environment(spec, resources, {"TRAINING_JOB_NAME": "j", "NCCL_SOCKET_IFNAME": "ens5"})
    assert found == {
        **{"PET_NODE_RANK": "1", "PET_MASTER_ADDR": "algo-1", "PET_MASTER_PORT": "29500", "HPCDDP_HOST": "algo-2"},
        **{"HPCDDP_JOB": "j", "HPCDDP_RESTART": "0", "NCCL_SOCKET_IFNAME": "ens5", "GLOO_SOCKET_IFNAME": "eth0"},
    }


def test_request_by_hand(aws: StandIn) -> None:
    """As AWS takes it, for spot instances on two nodes with data in S3."""
    Path("mine.yaml").write_text(f"{PROFILE}  spot: true\nenv: {{FI_PROVIDER: efa}}\n")
    root = f"workload.data.root=s3://{BUCKET}/cifar10"
    hpcddp("render", "--cluster", "mine.yaml", "--nodes", "2", "--set", root, "-o", "job.json")
    text = Path("job.json").read_text()
    check_golden("scripts/sagemaker.json", text)
    aws.client("sagemaker").create_training_job(**json.loads(text))
    assert len(aws.jobs) == 1
    assert "prints a request, no script" in hpcddp("render", "--cluster", "mine.yaml", "--explain", "--set", root, code=2).output


def test_commands_of_the_page(aws: StandIn, tmp_path: Path) -> None:
    """docs/clusters.md, from submit to report; the study is small: digits in its pictures' shape, on two ranks."""
    section = (ROOT / "docs/clusters.md").read_text().partition("\n## SageMaker\n")[2].partition("\n<!-- ")[0]
    lines = [line.removeprefix("    ") for line in section.splitlines() if line.startswith("    ")]
    commands = [line for line in lines if line.startswith("hpcddp ")]
    Path("cloud.yaml").write_text("\n".join(line for line in lines if line not in commands))
    hpcddp("data", "prepare", "digits", "--root", "digits")
    for name, content in files_of(tmp_path / "digits"):
        aws.client("s3").put_object(Bucket=BUCKET, Key=f"cifar10/{name}", Body=content)
    small = [
        "workload.data.name=digits",
        "workload.loader_workers_per_rank=0",
        "workload.batch_per_gpu=8",
        "work=steps",
        "repeat=1",
    ]
    small += ["measure.steps=4", "measure.warmup_steps=1", "device=cpu", "layout.physical_cores_per_rank=1"]
    few = ["--where", "gpus == 2", "--where", "workload.parallel == ddp", *(word for each in small for word in ("--set", each))]
    said = {}
    for command in commands:
        words = shlex.split(command)[1:]
        said[words[0]] = hpcddp(*words, *(few if words[0] == "submit" else [])).output
        if words[0] == "submit":
            (request,) = aws.created()
            assert Containers(aws, request, tmp_path / "job").run() == [0], (tmp_path / "job/localhost.log").read_text()
    assert list(said) == ["init", "plan", "submit", "status", "logs", "analyze"]
    assert ", at most 132 USD" in said["plan"]
    assert "1 run: 1 done" in said["status"]
    assert "samples/s" in said["analyze"]


def test_rule_that_needs_a_script(aws: StandIn) -> None:
    rule = "{name: NCCL_NET, value: x, source: s, when: {nccl: '>2'}}"
    Path("mine.yaml").write_text(f"{PROFILE}sources: {{s: some}}\nenv_rules: [{rule}]\n")
    assert "env_rules of mine need Slurm. Write them into env." in submit("--group", "one", code=2).output
