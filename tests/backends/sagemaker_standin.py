"""Amazon SageMaker on this machine: moto's server over HTTP, with what moto lacks, and containers as processes.

Every request of SageMaker and CloudWatch is validated by botocore's own models, with the lengths and patterns that it leaves to
AWS. Names of jobs stay taken; jobs wait until somebody runs them; faults are injected by operation.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import botocore.session
from botocore.validate import ParamValidator
from moto.backends import get_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from hpcddp.backends.local_runner import free_port

ACCOUNT, REGION, BUCKET = "123456789012", "us-east-1", "my-bucket"
SECRET = "NobodyMayReadThisSecretOfTheStandIn"
MARK = ".sagemaker-uploaded"
LOG_GROUP = "/aws/sagemaker/TrainingJobs"

Answer = tuple[int, dict[str, str]]
"""Status and body of an error of AWS's JSON protocol."""

Fault = Callable[["StandIn", Mapping[str, Any], Callable[[], Iterable[bytes]]], Iterable[bytes] | Answer]
"""What happens in place of a request: it may let the request through, and says what is answered."""


def refuse(code: str, message: str, status: int = 400) -> Fault:
    """The error `code`, without doing anything."""
    return lambda standin, environ, go_on: (status, {"__type": code, "message": message})


def cut_off(standin: StandIn, environ: Mapping[str, Any], go_on: Callable[[], Iterable[bytes]]) -> Iterable[bytes]:
    """The connection ends before the request has been read."""
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return []


def lose_answer(standin: StandIn, environ: Mapping[str, Any], go_on: Callable[[], Iterable[bytes]]) -> Iterable[bytes]:
    """AWS does what it was asked for, and the answer never arrives."""
    list(go_on())
    return cut_off(standin, environ, go_on)


class StandIn:
    """A server, to be used as a context."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._models = {
            target: botocore.session.get_session().get_service_model(service)
            for target, service in (("SageMaker", "sagemaker"), ("Logs_20140328", "logs"))
        }
        self.faults: dict[str, list[Fault]] = {}
        """Operation (or PUT, HEAD, GET of S3) -> what becomes of its next requests."""
        self.requests: list[tuple[str, Any]] = []
        """Of SageMaker and CloudWatch, in their order."""
        self.uploads: list[str] = []
        self.asking = 0
        """The process whose requests these are."""
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_ACCESS_KEY_ID": "AKIAOFTHESTANDIN",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def __enter__(self) -> StandIn:
        for service in ("s3", "sagemaker", "logs"):
            get_backend(service)[ACCOUNT]["aws" if service == "s3" else REGION].reset()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.client("s3").create_bucket(Bucket=BUCKET)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def client(self, service: str) -> Any:
        """boto3's, for what AWS itself or a user does."""
        import boto3

        env = self.environment
        return boto3.session.Session(env["AWS_ACCESS_KEY_ID"], SECRET).client(
            service, region_name=REGION, endpoint_url=env["AWS_ENDPOINT_URL"]
        )

    @property
    def jobs(self) -> dict[str, Any]:
        """moto's, by name."""
        found: dict[str, Any] = get_backend("sagemaker")[ACCOUNT][REGION].training_jobs
        return found

    def created(self) -> list[dict[str, Any]]:
        """The requests of the jobs that there are."""
        return [body for name, body in self.requests if name == "CreateTrainingJob" and body["TrainingJobName"] in self.jobs]

    def end(self, job: str, status: str, second: str | None = None, reason: str | None = None) -> None:
        """The job is in that state now."""
        found = self.jobs[job]
        found.training_job_status, found.secondary_status = status, second or status
        found.failure_reason = reason

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        if not target:
            return self._answer_s3(environ, start_response)
        model, operation = self._models[target.partition(".")[0]], target.partition(".")[2]
        raw = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        body = json.loads(raw)
        shape = model.operation_model(operation).input_shape
        problems = ParamValidator().validate(body, shape).generate_report() or "; ".join(_out_of_range(body, shape, operation))
        if problems:
            return _error(start_response, 400, {"__type": "ValidationException", "message": problems})
        self.requests.append((operation, body))

        def go_on() -> Iterable[bytes]:
            return self._do(operation, body, environ, start_response)

        if waiting := self.faults.get(operation):
            answer = waiting.pop(0)(self, environ, go_on)
            return _error(start_response, *answer) if isinstance(answer, tuple) else answer
        return go_on()

    def _answer_s3(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        if method == "PUT" and environ["PATH_INFO"].count("/") > 1:
            self.uploads.append(environ["PATH_INFO"])

        def go_on() -> Iterable[bytes]:
            return self._moto(environ, start_response)  # type: ignore[no-any-return]

        if waiting := self.faults.get(method):
            answer = waiting.pop(0)(self, environ, go_on)
            if isinstance(answer, tuple):
                start_response(f"{answer[0]} no", [("Content-Type", "application/xml")])
                return [f"<Error><Code>{answer[1]['__type']}</Code><Message>{answer[1]['message']}</Message></Error>".encode()]
            return answer
        return go_on()

    def _do(self, operation: str, body: Any, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        name = body.get("TrainingJobName")
        if operation == "CreateTrainingJob" and name in self.jobs:
            words = f"Training job names must be unique within an AWS account and region, and {name} already exists"
            return _error(start_response, 400, {"__type": "ResourceInUse", "message": words})
        if operation == "StopTrainingJob":
            if self.jobs[name].training_job_status not in ("InProgress", "Stopping"):
                words = f"The request was rejected because the training job is in status {self.jobs[name].training_job_status}."
                return _error(start_response, 400, {"__type": "ValidationException", "message": words})
            self.end(name, "Stopped")
            return _json(start_response, "200 OK", {})
        if operation == "FilterLogEvents":  # moto knows names of streams, no prefix
            groups = get_backend("logs")[ACCOUNT][REGION].groups
            streams = groups[LOG_GROUP].streams if LOG_GROUP in groups else {}
            prefix = body.pop("logStreamNamePrefix")
            body["logStreamNames"] = [each for each in streams if each.startswith(prefix)] or ["none"]
        answer = self._to_moto(environ, json.dumps(body).encode(), start_response)
        if operation == "CreateTrainingJob":
            self.end(name, "InProgress", "Starting")
            self.jobs[name].stopping_condition = body["StoppingCondition"]
        return answer

    def _to_moto(self, environ: dict[str, Any], raw: bytes, start_response: Callable[..., Any]) -> Iterable[bytes]:
        import io

        return list(self._moto({**environ, "wsgi.input": io.BytesIO(raw), "CONTENT_LENGTH": str(len(raw))}, start_response))


def _json(start_response: Callable[..., Any], status: str, plain: object) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "application/x-amz-json-1.1")])
    return [json.dumps(plain).encode()]


def _error(start_response: Callable[..., Any], status: int, plain: Mapping[str, str]) -> Iterable[bytes]:
    return _json(start_response, f"{status} no", plain)


def _out_of_range(value: Any, shape: Any, path: str) -> Iterable[str]:
    """What AWS refuses beyond types: lengths, patterns, words of an enumeration."""
    limits = shape.metadata
    if hasattr(value, "__len__") and len(value) > limits.get("max", sys.maxsize):
        yield f"{path} has {len(value)} items, at most {limits['max']} are allowed"
    if shape.type_name == "string":
        pattern = limits.get("pattern", "").replace(r"\p{L}", "a-zA-Z").replace(r"\p{Z}", " ").replace(r"\p{N}", "0-9")
        if (pattern and not re.fullmatch(pattern, value)) or (limits.get("enum") and value not in limits["enum"]):
            yield f"{path} is {value!r}, against {pattern or 'its enumeration'}"
    elif shape.type_name == "structure":
        for key, item in value.items():
            yield from _out_of_range(item, shape.members[key], f"{path}.{key}")
    elif shape.type_name == "map":
        for key, item in value.items():
            yield from _out_of_range(key, shape.key, path)
            yield from _out_of_range(item, shape.value, f"{path}.{key}")
    elif shape.type_name == "list":
        for item in value:
            yield from _out_of_range(item, shape.member, path)


@dataclasses.dataclass
class Containers:
    """The instances of a job that runs here: each has a folder in place of /opt/ml, filled from S3 as SageMaker does."""

    standin: StandIn
    request: Mapping[str, Any]
    folder: Path

    @property
    def hosts(self) -> list[str]:
        """The first one is this machine's own name, at which the others meet it."""
        return ["localhost", *(f"algo-{n}" for n in range(2, self.request["ResourceConfig"]["InstanceCount"] + 1))]

    def start(self) -> list[subprocess.Popen[bytes]]:
        """A process for each."""
        self.standin.end(self.request["TrainingJobName"], "InProgress", "Training")
        port = str(free_port())
        return [self._start(host, port) for host in self.hosts]

    def finish(self, processes: Iterable[subprocess.Popen[bytes]], timeout_s: float = 240) -> list[int]:
        """Waits for all, brings what they left to S3 and CloudWatch, and ends the job as SageMaker would; their exit codes."""
        codes = [process.wait(timeout_s) for process in processes]
        self.upload()
        failures = [file.read_text() for host in self.hosts if (file := self._ml(host) / "output/failure").is_file()]
        job = self.request["TrainingJobName"]
        if any(codes):
            self.standin.end(
                job, "Failed", reason=f"AlgorithmError: {failures[0] if failures else 'none'}, exit code: {max(codes)}"
            )
        else:
            self.standin.end(job, "Completed")
        return codes

    def run(self) -> list[int]:
        """From start to end."""
        return self.finish(self.start())

    def upload(self) -> None:
        """What SageMaker does all the time; it marks files that it has uploaded, beside them."""
        s3, logs, job = self.standin.client("s3"), self.standin.client("logs"), self.request["TrainingJobName"]
        bucket, _, prefix = self.request["CheckpointConfig"]["S3Uri"].removeprefix("s3://").partition("/")
        if LOG_GROUP not in [each["logGroupName"] for each in logs.describe_log_groups()["logGroups"]]:
            logs.create_log_group(logGroupName=LOG_GROUP)
        for host in self.hosts:
            place = self._ml(host) / "checkpoints"
            for file in sorted(each for each in place.rglob("*") if each.is_file() and each.suffix != MARK):
                file.with_name(f"{file.name}{MARK}").touch()
                s3.put_object(Bucket=bucket, Key=f"{prefix}{file.relative_to(place)}", Body=file.read_bytes())
            stream = f"{job}/{host}-{time.time_ns()}"
            lines = (self.folder / f"{host}.log").read_text().splitlines()
            logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
            events = [{"timestamp": round(time.time() * 1000), "message": line} for line in lines if line]
            if events:
                logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=stream, logEvents=events)

    def _ml(self, host: str) -> Path:
        return self.folder / host / "ml"

    def _here(self, text: str, host: str) -> str:
        return text.replace("/opt/ml", str(self._ml(host))).replace("/opt/hpcddp", str(self.folder / host / "code"))

    def _start(self, host: str, port: str) -> subprocess.Popen[bytes]:
        request, ml = self.request, self._ml(host)
        (ml / "input/config").mkdir(parents=True, exist_ok=True)
        resources = {"hosts": self.hosts, "current_host": host, "network_interface_name": "lo"}
        (ml / "input/config/resourceconfig.json").write_text(json.dumps(resources))
        parameters = {name: self._here(text, host) for name, text in request["HyperParameters"].items()}
        (ml / "input/config/hyperparameters.json").write_text(json.dumps(parameters))
        for channel in request.get("InputDataConfig", ()):
            self._download(channel["DataSource"]["S3DataSource"]["S3Uri"], ml / "input/data" / channel["ChannelName"])
        self._download(request["CheckpointConfig"]["S3Uri"], ml / "checkpoints")
        algorithm = request["AlgorithmSpecification"]
        words = [*algorithm["ContainerEntrypoint"], *(self._here(each, host) for each in algorithm["ContainerArguments"])]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"PATH": path, "TRAINING_JOB_NAME": request["TrainingJobName"], "PET_MASTER_PORT": port}
        own["AWS_SECRET_ACCESS_KEY"] = SECRET  # as good as what a role's credentials are found by
        with (self.folder / f"{host}.log").open("ab") as log:
            return subprocess.Popen(words, env={**request["Environment"], **own}, cwd=ml, stdout=log, stderr=log)

    def _download(self, uri: str, target: Path) -> None:
        """All that begins with the URI, as SageMaker has it."""
        target.mkdir(parents=True, exist_ok=True)
        s3 = self.standin.client("s3")
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        for each in s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ()):
            file = target / each["Key"].removeprefix(prefix)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(s3.get_object(Bucket=bucket, Key=each["Key"])["Body"].read())
