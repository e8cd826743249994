"""Amazon SageMaker: each run is a training job. Its id is its name, which hpcddp chooses and which is never free again.

    s3://BUCKET/PREFIX/code/HASH/             a snapshot, packed, once
    s3://BUCKET/PREFIX/STUDY-ID/LABEL-rK/     what the run's containers have at /opt/ml/checkpoints: a study with this run
    STUDY/.jobs/elsewhere.id                  its ID, as other studies may have its name
    STUDY/.jobs/JOB/request.json              the request and its region, from before it is sent
    STUDY/.jobs/JOB/ended.json                how the job ended; its records are here then

boto3 finds credentials by itself; they are in none of these.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcddp.backends.base import Batch, JobState, Submission
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.errors import FullError, HpcddpError, RefusedError, UsageError
from hpcddp.core.jobspec import JobSpec, data_root_as_given
from hpcddp.core.launcher import WORKER
from hpcddp.core.records import write_aside, write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import decode, did_you_mean, encode
from hpcddp.core.study_files import name_elsewhere
from hpcddp.core.text import count
from hpcddp.script.resources import cores_per_rank

ML, CODE = "/opt/ml", "/opt/hpcddp"
"""In the container: SageMaker's own folder, and where a snapshot is unpacked, which nobody else writes."""

REQUEST, ENDED = "request.json", "ended.json"

PIECE = 2500
"""Characters of a hyperparameter at most; a variable has 512, less than a spec."""

SPOT_WAIT_S = 24 * 3600
"""So much longer than its time limit a job on spot instances may take: it waits for them."""

SETTLES_S = 10
"""A request whose sender was killed may still arrive; so long after it was written a job that is not there will not be."""

LIMITS = ("ResourceLimitExceeded", "ThrottlingException")
"""AWS's words for more than it takes for now. botocore has repeated what was throttled."""

ABSENT = ("ValidationException", "ResourceNotFound")
"""Its words for a job that is not there, or has ended: the names that hpcddp makes are valid."""

RUNS = ("Training", "Uploading", "Stopping")
"""SecondaryStatus of a job that holds instances for its ranks; the others come before, also after an interruption."""


class SageMakerBackend:
    """Jobs of one study."""

    name = "sagemaker"

    def __init__(self, study: Study) -> None:
        self._study = Study(study.folder.absolute())

    def check(self, submission: Submission) -> None:
        """UsageError for an instance type that SageMaker does not have, or for what is no run."""
        if submission.entry != WORKER:
            raise UsageError("SageMaker runs the points of a sweep only. Prepare data elsewhere, and copy them to S3.")
        kind, region = submission.spec.point.layout.node_type, submission.spec.profile["sagemaker"]["region"]
        known = _client("sagemaker", region).meta.service_model.shape_for("TrainingInstanceType").enum
        if kind not in known:
            raise UsageError(f"boto3 lists no instance type `{kind}`{did_you_mean(str(kind), known)}. Set layout.node_type.")

    def submit(self, submission: Submission) -> str:
        """Uploads the code, notes the request, sends it. A name that is taken is the job's own: botocore asks again where an
        answer is lost.
        """
        profile, spec = decode(ClusterProfile, submission.spec.profile), submission.spec
        region, place = str(profile.sagemaker.region), f"s3://{profile.sagemaker.bucket}/{profile.sagemaker.prefix}"
        run, client = f"{spec.label}-r{spec.run}", _client("sagemaker", region)
        job = f"{run}-a{1 + len(list(self._study.jobs.glob(f'{run}-a*')))}-{submission.token}"
        code = _upload(submission.code, place, region)
        records = f"{place}/{name_elsewhere(self._study)}/{run}"
        request = training_request(profile, spec, records, submission.walltime_min, code) | {"TrainingJobName": job}
        write_json(self._study.job_dir(job) / REQUEST, {"region": region, "request": request})
        with _asking(f"SageMaker refused {spec.label} r{spec.run}"), contextlib.suppress(client.exceptions.ResourceInUse):
            client.create_training_job(**request)
        return job

    def batches(self, submissions: Sequence[Submission]) -> list[Batch]:
        """A job each."""
        return [Batch(submissions=(submission,)) for submission in submissions]

    def submit_batch(self, batch: Batch) -> list[str]:
        """FullError, too, where --max-running lets it start only after others: SageMaker has no such queue."""
        if batch.after:
            raise FullError(f"As many runs wait or run on SageMaker as --max-running allows, {batch.after[0]} among them.")
        return [self.submit(submission) for submission in batch.submissions]

    def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
        """A job that has ended is asked for once: its records come here before its state says so."""
        _client.cache_clear()  # credentials may have been renewed
        return {job: self._state(self._study.job_dir(job)) for job in jobs}

    def _state(self, folder: Path) -> JobState:
        try:
            if (folder / ENDED).is_file():
                return decode(JobState, json.loads((folder / ENDED).read_text(encoding="utf-8")))
            state = _job_state(_accepted(folder))
            if state.phase in ("done", "failed"):
                self._fetch(folder)
                with contextlib.suppress(HpcddpError):
                    save_log(folder)
                write_json(folder / ENDED, encode(state))
            return state
        except (HpcddpError, OSError) as error:
            return JobState(phase="unknown", detail=str(error))

    def _fetch(self, folder: Path) -> None:
        """What the job's attempts recorded, each end.json last. Checkpoints stay in S3, where the run's next job finds them."""
        region, request = _sent(folder)
        label, run = (tag["Value"] for tag in request["Tags"])
        record = re.compile(rf"{label}/r{run}/{folder.name}\.\d+/(?!checkpoints/)(?:[\w-][\w.-]*/)*[\w-][\w.-]*")
        bucket, prefix, s3 = *_split(request["CheckpointConfig"]["S3Uri"]), _client("s3", region)
        with _asking(f"The records of {folder.name} cannot be fetched"):
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            names = [each["Key"].removeprefix(prefix) for page in pages for each in page.get("Contents", ())]
            for name in sorted(filter(record.fullmatch, names), key=lambda name: name.endswith("/end.json")):
                content = s3.get_object(Bucket=bucket, Key=f"{prefix}{name}")["Body"].read()
                write_aside(self._study.folder / name, content, sync=False)

    def cancel(self, jobs: Mapping[str, str]) -> None:
        """Tries each; HpcddpError names those that may still run. One that has ended cannot be stopped, and need not be."""
        left = list[str]()
        for folder in map(self._study.job_dir, jobs):
            try:
                if _of_job("stop_training_job", folder) is None and _accepted(folder)["TrainingJobStatus"] == "InProgress":
                    left.append(f"{folder.name}: SageMaker did not stop it")
            except (HpcddpError, OSError) as error:
                left.append(f"{folder.name}: {error}")
        if left:
            raise HpcddpError("\n".join([f"{count(len(left), 'job')} may still run. Run `hpcddp cancel` again.", *left]))

    def find(self, study: Study, name: str, token: str) -> str | None:
        """By its request, which is written before it is sent."""
        sent = next(study.jobs.glob(f"*-{token}/{REQUEST}"), None)
        return None if sent is None or _describe(sent.parent) is None else sent.parent.name


def training_request(
    profile: ClusterProfile, spec: JobSpec, records: str, walltime_min: float, code: str | None = None
) -> dict[str, Any]:
    """CreateTrainingJob's. `records` and `code` are folders of S3: the run's, and its snapshot's (None: the image has hpcddp)."""
    settings, layout, root = profile.sagemaker, spec.point.layout, data_root_as_given(spec) or ""
    channels = {name: uri for name, uri in (("code", code), ("data", root)) if uri and uri.startswith("s3://")}
    unpack = f"mkdir -p {CODE}; tar -xzf {ML}/input/data/code/code.tar.gz -C {CODE}; export PYTHONPATH={CODE}; cd {CODE}; "
    lines = {"HPCDDP_ACTIVATE": "\n".join(profile.compute.activate)} if profile.compute.activate else {}
    activate = 'eval "$HPCDDP_ACTIVATE"; ' if lines else ""  # AWS takes no line break in an argument, and 256 characters
    start = f"set -e; {activate}{unpack if code else ''}exec {profile.compute.python} -u -m hpcddp.worker.sagemaker {ML}"
    text = json.dumps(encode(_in_container(spec, "data" in channels), keep_defaults=False), sort_keys=True, allow_nan=False)
    threads = {} if (cores := cores_per_rank(spec.point)) is None else {"OMP_NUM_THREADS": str(cores)}
    limits_s = {"MaxRuntimeInSeconds": round(60 * walltime_min)}
    if settings.spot:
        limits_s["MaxWaitTimeInSeconds"] = limits_s["MaxRuntimeInSeconds"] + SPOT_WAIT_S
    return {
        "TrainingJobName": spec.label,
        "AlgorithmSpecification": {"TrainingImage": settings.image, "TrainingInputMode": "File"}
        | {"ContainerEntrypoint": ["bash", "-c"], "ContainerArguments": [start]},
        "RoleArn": settings.role,
        "HyperParameters": {f"spec-{at // PIECE:02d}": text[at : at + PIECE] for at in range(0, len(text), PIECE)},
        **({"InputDataConfig": [_channel(*each) for each in channels.items()]} if channels else {}),
        "OutputDataConfig": {"S3OutputPath": f"{records}-output"},
        "CheckpointConfig": {"S3Uri": f"{records}/", "LocalPath": f"{ML}/checkpoints"},  # without the slash r10 would be in r1's
        "ResourceConfig": {"InstanceType": layout.node_type, "InstanceCount": layout.nodes, "VolumeSizeInGB": settings.volume_gb},
        "StoppingCondition": limits_s,
        "EnableManagedSpotTraining": bool(settings.spot),
        "Environment": {**lines, **threads, **profile.env, **spec.point.env},
        "Tags": [{"Key": "hpcddp-label", "Value": spec.label}, {"Key": "hpcddp-run", "Value": str(spec.run)}],
    }


def _in_container(spec: JobSpec, has_channel: bool) -> JobSpec:
    """The spec with paths as they are there, and without what of the profile is the user's account's."""
    facts = {key: item for key, item in spec.profile.items() if key != "sagemaker"}
    spec = replace(spec, study=f"{ML}/checkpoints", profile=facts)
    if not has_channel:
        return spec
    workload = replace(spec.point.workload, data=replace(spec.point.workload.data, root=None))
    return replace(spec, point=replace(spec.point, workload=workload), data_root=f"{ML}/input/data/data")


def _channel(name: str, uri: str) -> dict[str, object]:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"{uri.rstrip('/')}/", "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


def request_by_hand(profile: ClusterProfile, spec: JobSpec, walltime_min: float) -> str:
    """JSON for `aws sagemaker create-training-job --cli-input-json`; the image has hpcddp."""
    if lacks := _unfit(profile):
        raise UsageError("\n".join(lacks))
    records = f"s3://{profile.sagemaker.bucket}/{profile.sagemaker.prefix}/adhoc/{spec.label}"
    return json.dumps(training_request(profile, spec, records, walltime_min), indent=1, sort_keys=True) + "\n"


def _unfit(profile: ClusterProfile) -> list[str]:
    lacks = [f"sagemaker.{key}" for key in ("image", "role", "bucket", "region") if getattr(profile.sagemaker, key) is None]
    found = [f"{profile.name} does not define {', '.join(lacks)}. Write a profile that extends it and does."] if lacks else []
    modules = f"compute.modules of {profile.name} need Slurm. Omit them: jobs run in sagemaker.image."
    found += [modules] if profile.compute.modules else []
    role = profile.sagemaker.role or "arn:"
    arn = f"sagemaker.role is `{role}`. Give its ARN: `aws iam get-role --role-name {role}`."
    found += [] if role.startswith("arn:") else [arn]
    return found + ([f"env_rules of {profile.name} need Slurm. Write them into env."] if profile.env_rules else [])


def unreachable(profile: ClusterProfile) -> list[str]:
    """Sentences where no job could be submitted, before anything is: for want of keys, boto3, credentials, the bucket."""
    if found := _unfit(profile):
        return found
    bucket, region = profile.sagemaker.bucket, str(profile.sagemaker.region)
    try:
        s3 = _client("s3", region)
        with _asking(f"S3 does not give access to bucket {bucket} in {region} (test `aws s3 ls s3://{bucket}`)"):
            answer = s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
    except HpcddpError as error:
        return [str(error)]
    there = answer.get("x-amz-bucket-region", region)
    elsewhere = f"Bucket {bucket} is in {there}, and sagemaker.region is {region}. SageMaker takes buckets of its own region."
    return [] if there == region else [elsewhere]


def save_log(folder: Path) -> None:
    """What CloudWatch has of the job's instances, one after the other, as the log of its batch script."""
    client, lines = _client("logs", _sent(folder)[0]), dict[str, list[str]]()
    where = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamNamePrefix": f"{folder.name}/"}
    with _asking(f"The log of {folder.name} cannot be read"), contextlib.suppress(client.exceptions.ResourceNotFoundException):
        for page in client.get_paginator("filter_log_events").paginate(**where):
            for event in page["events"]:
                lines.setdefault(event["logStreamName"], []).append(event["message"] + "\n")
    if lines:
        write_aside(folder / "batch.err", "".join(line for name in sorted(lines) for line in lines[name]).encode())


def _job_state(found: Mapping[str, Any]) -> JobState:
    """From the answer of DescribeTrainingJob."""
    status, second = found["TrainingJobStatus"], found["SecondaryStatus"]
    limit_s, begun = found["StoppingCondition"]["MaxRuntimeInSeconds"], found.get("TrainingStartTime")
    limit = f"{limit_s // 60}:00"
    if status == "Completed":
        return JobState(phase="done")
    if status == "Failed":
        return JobState(phase="failed", detail=found.get("FailureReason") or "SageMaker gives no reason")
    if second == "MaxWaitTimeExceeded":
        return JobState(phase="failed", detail="there were no spot instances for it in time (MaxWaitTimeExceeded)")
    if status == "Stopped":
        return JobState(phase="failed", word="TIMEOUT" if second == "MaxRuntimeExceeded" else "CANCELLED", time_limit=limit)
    if second not in RUNS:
        return JobState(phase="queued", detail=second, time_limit=limit)
    left_s = None if begun is None else limit_s - (time.time() - begun.timestamp())
    return JobState(phase="running", time_limit=limit, time_left_s=left_s)


def _accepted(folder: Path) -> Any:
    """What SageMaker says of a job that it took, which may be another account's."""
    if (found := _of_job("describe_training_job", folder)) is None:
        raise HpcddpError(f"SageMaker has no job of this name in {_sent(folder)[0]}: is this the AWS account that submitted it?")
    return found


def _describe(folder: Path) -> Any:
    """None where there is no such job, and none will come."""
    while (found := _of_job("describe_training_job", folder)) is None:
        if time.time() > (folder / REQUEST).stat().st_mtime + SETTLES_S:
            return None
        time.sleep(1)
    return found


def _of_job(operation: str, folder: Path) -> Any:
    """The answer; None where there is no such job, or the operation comes too late for it."""
    client = _client("sagemaker", _sent(folder)[0])
    with _asking(f"{operation} of {folder.name} failed"):
        try:
            return getattr(client, operation)(TrainingJobName=folder.name)
        except client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] not in ABSENT:
                raise
    return None


def _sent(folder: Path) -> tuple[str, Any]:
    """Region and request of the job."""
    found = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
    return found["region"], found["request"]


def _split(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def _upload(code: Path, place: str, region: str) -> str:
    """The folder of S3 that has the snapshot; an object is there as a whole or not at all."""
    folder, s3 = f"{place}/code/{code.name}", _client("s3", region)
    bucket, key = _split(f"{folder}/code.tar.gz")
    with _asking(f"The code cannot be uploaded to {folder}"):
        if not s3.list_objects_v2(Bucket=bucket, Prefix=key)["KeyCount"]:
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w:gz") as tar:
                tar.add(code, ".")
            s3.put_object(Bucket=bucket, Key=key, Body=packed.getvalue())
    return folder


@functools.cache
def _client(service: str, region: str) -> Any:
    """Credentials, profiles and endpoints are boto3's own affair."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise HpcddpError("This Python has no boto3. Install it with `pip install 'hpcddp[sagemaker]'`.") from error
    config = Config(retries={"mode": "standard", "total_max_attempts": 5})
    with _asking(f"boto3 cannot reach {service} in {region}"):
        return boto3.session.Session().client(service, region_name=region, config=config)


@contextlib.contextmanager
def _asking(what: str) -> Iterator[None]:
    """AWS's refusals as RefusedError, FullError for its limits; HpcddpError where it is not known what became of a request."""
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

    try:
        yield
    except ClientError as error:
        code, text = error.response["Error"]["Code"], error.response["Error"].get("Message")
        unsure = error.response["ResponseMetadata"].get("HTTPStatusCode", 400) >= 500
        quota = re.search(r"limit .* is (\d+) .* request delta of (\d+) ", text or "")
        fits = quota is None or int(quota[2]) <= int(quota[1])  # once other jobs have ended
        kind = HpcddpError if unsure else FullError if code in LIMITS and fits else RefusedError
        raise kind(f"{what}: {text} ({code})") from error
    except ParamValidationError as error:
        raise RefusedError(f"{what}: {error}") from error
    except BotoCoreError as error:
        raise HpcddpError(f"{what}: {error}") from error
