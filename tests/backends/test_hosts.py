"""Runs on hosts by ssh: real sshds, rsync and torchrun; hosts and commands are really killed."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends import hosts, hosts_run
from hpcddp.cluster.hosts import cluster_on, hosts_of, split_hosts
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.errors import UsageError
from hpcddp.core.run_root import Study
from hpcddp.core.study_files import name_elsewhere
from hpcddp.worker.host_node import take_host
from hpcddp.worker.host_probe import host_facts
from tests import check_golden
from tests.backends.ssh_hosts import Hosts, two_hosts
from tests.commands.conftest import JOBS, Run, refused, run
from tests.fake_slurm import wait_for

__all__ = ["run"]  # a fixture

ROOT = Path(__file__).parents[2]

PROFILE = """
schema: 1
name: pair
title: Two hosts
backend: hosts
node_types: {host: {names: "node1,node2", count: 2}}
default_node_type: host
env: {GLOO_SOCKET_IFNAME: lo}
compute: {python: %s}
"""

SWEEP = """
schema: 1
cluster: pair.yaml
device: cpu
workload: {model: mnist-cnn, data: {name: synthetic-mnist}, batch_per_gpu: 8, loader_workers_per_rank: 0}
points: {nodes: {layout.nodes: [2]}}
measure: {warmup_steps: 2, steps: 10, telemetry_hz: 0}
"""

ENDLESS = ("--set", "measure.steps=1000000")


class User:
    """Somebody at a machine that reaches both."""

    def __init__(self, hosts: Hosts, home: Path) -> None:
        self.hosts, self.home = hosts, home
        (home / "pair.yaml").write_text(PROFILE % sys.executable)
        (home / "small.yaml").write_text(SWEEP)
        self.env = {**hosts.env, "XDG_CONFIG_HOME": str(home / "config")}

    def hpcddp(self, *arguments: object, code: int = 0) -> str:
        command = [sys.executable, "-m", "hpcddp", *map(str, arguments)]
        done = subprocess.run(command, cwd=self.home, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def run(self, name: str = "small") -> dict[str, Any]:
        """Of the only run."""
        command = [sys.executable, "-m", "hpcddp", "status", name, "--format", "json"]
        done = subprocess.run(command, cwd=self.home, env=self.env, capture_output=True, text=True, check=False)
        [study] = json.loads(done.stdout)["studies"]
        [found] = study["runs"]
        return dict(found)

    def wait_until(self, phase: str, name: str = "small") -> dict[str, Any]:
        wait_for(lambda: self.run(name)["phase"] == phase)
        return self.run(name)

    def training(self, name: str = "small") -> None:
        """Returns once its first steps are made, and brought here."""
        wait_for(lambda: (self.run(name)["steps_done"] or 0) > 0)


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    home = tmp_path / "a home"
    home.mkdir()
    with two_hosts(tmp_path / "hosts") as hosts:
        found = User(hosts, home)
        yield found
        for name in ("small", "other"):
            if (home / name).is_dir():
                subprocess.run([sys.executable, "-m", "hpcddp", "cancel", name, "-y"], cwd=home, env=found.env, check=False)


SMALL = [
    *("--set", "device=cpu", "--set", "workload.data.name=synthetic-cifar10", "--set", "workload.precision=fp32"),
    *("--set", "workload.batch_per_gpu=4", "--set", "measure.steps=4", "--set", "measure.warmup_steps=1", "--set", "repeat=1"),
]


@pytest.mark.dear
def test_a_study_of_two_machines_by_the_commands_of_the_page(user: User) -> None:
    """From submit to report, in the words of docs/clusters.md; its runs smaller, and of a cluster with this machine's Python."""
    section = (ROOT / "docs" / "clusters.md").read_text().partition("\n## Hosts by ssh\n")[2].partition("\n## ")[0]
    commands = [shlex.split(line)[1:] for line in re.findall(r"^    (hpcddp .*)$", section, re.MULTILINE)]
    mine = f"name: mine\nextends: aws-g5\ncompute: {{python: {sys.executable}}}\nenv: {{GLOO_SOCKET_IFNAME: lo}}\n"
    (user.home / "mine.yaml").write_text(f"schema: 1\n{mine}")
    more = {"submit": ["--cluster", "mine.yaml", *SMALL, "-y", "--wait"], "analyze": ["--full", "--to", "csv"]}
    said = {words[0]: user.hpcddp(*words, *more.get(words[0], [])) for words in commands}
    assert list(said) == ["init", "plan", "submit", "status", "logs", "analyze"]
    assert "submitted    2 jobs" in said["submit"]
    records = Study(user.home / "ec2-resnet18")
    assert sorted(file.name for file in records.folder.glob("n02*/r1/*/nodes/*.json")) == ["node1.json", "node2.json"]
    with (records.folder / "report" / "scaling.csv").open() as table:
        assert [row["nodes"] for row in csv.DictReader(table)] == ["1", "2"]
    submit = next(words for words in commands if words[0] == "submit")
    assert "nothing to submit" in user.hpcddp(*submit, *more["submit"])


def kill_submits(user: User, times: int) -> None:
    for _ in range(times):
        command = [sys.executable, "-m", "hpcddp", "submit", "small.yaml", "--set", "repeat=3", "-y"]
        process = subprocess.Popen(command, cwd=user.home, env=user.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.2, 4.0))
        process.kill()
        process.wait()
    user.hpcddp("submit", "small.yaml", "--set", "repeat=3", "-y", "--wait")
    attempts = sorted(path.parent.name for path in (user.home / "small").glob("n02*/r*/*.0"))
    assert attempts == ["r1", "r2", "r3"]


@pytest.mark.dear
def test_each_run_is_done_once_where_submit_is_killed(user: User) -> None:
    kill_submits(user, 2)


@pytest.mark.soak
def test_each_run_is_done_once_where_submit_is_killed_ten_times(user: User) -> None:
    kill_submits(user, 10)


@pytest.mark.dear
@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_a_host_that_is_lost_is_named_and_the_other_ends(user: User, fault: str) -> None:
    user.hpcddp("submit", "small.yaml", *ENDLESS, "-y")
    user.training()
    getattr(user.hosts, fault)("node2")
    begun_s = time.monotonic()
    failed = user.wait_until("failed")
    assert time.monotonic() - begun_s < 30
    assert failed["detail"].startswith("node2 was lost: ssh had no answer from it, or its connection ended")
    wait_for(lambda: not ranks(user.hosts, "node1"))


def ranks(hosts: Hosts, host: str) -> list[int]:
    """Processes of runs there."""
    texts = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in hosts.processes(host)}
    return [pid for pid, text in texts.items() if b"hpcddp.worker" in text]


@pytest.mark.dear
def test_a_second_study_waits_and_says_for_what(user: User) -> None:
    user.hpcddp("submit", "small.yaml", *ENDLESS, "-y")
    user.training()
    (user.home / "other.yaml").write_text(SWEEP)
    user.hpcddp("submit", "other.yaml", "-y")
    wait_for(lambda: "waits for" in (user.run("other")["detail"] or ""))
    assert user.run("other")["detail"].startswith("waits for node1: small, n02-g1-b8-")
    user.hpcddp("cancel", "small", "-y")
    assert user.wait_until("failed")["detail"] == "cancelled by you (CANCELLED)"
    assert user.wait_until("done", "other")["phase"] == "done"


@pytest.mark.dear
def test_the_runner_that_dies_leaves_nothing_on_the_hosts(user: User) -> None:
    user.hpcddp("submit", "small.yaml", *ENDLESS, "-y")
    user.training()
    assert user.run()["limit_left_s"] > 0
    runner = json.loads((user.home / "small" / ".jobs" / "runner.json").read_text())["pid"]
    os.kill(runner, signal.SIGKILL)
    assert user.wait_until("failed")["detail"].startswith("its runner process died")
    wait_for(lambda: not ranks(user.hosts, "node1") and not ranks(user.hosts, "node2"))


@pytest.mark.dear
def test_a_rank_that_fails_is_told_with_its_log(user: User) -> None:
    nowhere = ("--set", "workload.data.name=mnist", "--set", "workload.data.root=/nowhere")
    user.hpcddp("submit", "small.yaml", *nowhere, "-y", "--wait", code=1)
    failed = user.run()
    assert "/nowhere" in failed["detail"]
    assert "/nowhere" in user.hpcddp("logs", "small/n02")


@pytest.mark.dear
def test_hosts_that_cannot_train_together_are_refused_before_anything_begins(user: User) -> None:
    def says(*arguments: str) -> str:
        return user.hpcddp("submit", "small.yaml", *arguments, "-y", code=2)

    client = user.hosts.folder / "client"
    client.write_text(client.read_text().replace("StrictHostKeyChecking no", "StrictHostKeyChecking yes"))
    assert "node1 does not answer: Host key verification failed. Run `ssh node1` once, and check the key." in says()
    client.write_text(client.read_text().replace("StrictHostKeyChecking yes", "StrictHostKeyChecking no"))
    gone = says("--hosts", "node1,nowhere.invalid")
    assert "nowhere.invalid does not answer: " in gone
    assert "Test it with `ssh -o BatchMode=yes nowhere.invalid true`." in gone
    (user.home / "pair.yaml").write_text(PROFILE % "/nowhere/python")
    bare = says()
    assert re.search(r"node2 has no Python that answers: .*No such file .*\. Test `ssh node2 /nowhere/python -V`\.", bare)
    (user.home / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    (user.home / "python3").chmod(0o755)
    (user.home / "pair.yaml").write_text(PROFILE % f"'{user.home}/python3'")
    (user.home / "pair.yaml").write_text((PROFILE % "x").replace("python: x", f"python: \"'{user.home}/python3'\""))
    bare = says()
    assert "node1 has no torch in its Python 3." in bare
    assert "node2 has no torch in its Python 3." in bare
    (user.home / "pair.yaml").write_text(PROFILE % sys.executable)
    assert "node1 has 0 GPUs for torch, and the point needs 1." in says("--set", "device=cuda")
    assert "layout.nodes is 2" in says("--hosts", "node1") or "has 1 nodes" in says("--hosts", "node1")
    assert not list((user.home / "small").glob("n02*/r1"))


@pytest.mark.parametrize("program", ["ssh", "rsync"])
def test_a_dry_run_says_which_program_is_missing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    for name in {"ssh", "rsync", "git"} - {program}:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "pair.yaml").write_text(PROFILE % "python3")
    (tmp_path / "small.yaml").write_text(SWEEP)
    package = {"ssh": "openssh-client", "rsync": "rsync"}[program]
    assert f"! This machine has no `{program}`. Install {package}." in run("submit", "small.yaml", "--dry-run").stderr


def test_what_needs_a_slurm_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pair.yaml").write_text(PROFILE % "python3")
    (tmp_path / "small.yaml").write_text(SWEEP)
    for option in ("--smoke", "--preflight", "--prepare"):
        assert f"{option} needs a Slurm, and pair has none." in run("submit", "small.yaml", option, "--dry-run").stderr
    assert "runs on hosts begin anew" in run("submit", "small.yaml", "--dry-run", "--set", "measure.resume=true").stderr


def test_what_a_person_types_on_each_host(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(JOBS.parent)
    hosts = ("--hosts", "ec2-user@10.0.0.1,ec2-user@10.0.0.2", "--set", "workload.data.root=/data")
    chosen = ("--group", "nodes", "--where", "layout.nodes == 2")
    check_golden("hosts/ec2-resnet18.sh", run("render", "jobs/ec2-resnet18.yaml", *hosts, *chosen).stdout)


@pytest.mark.parametrize("text", ["a,user@b", "a\nuser@b\n", "# two\na  # first\nuser@b\n", "a, user@b"])
def test_hosts_are_given_by_name_or_by_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "hosts").write_text(text)
    assert split_hosts(text) == ["a", "user@b"]
    assert cluster_on("aws-g5", str(tmp_path / "hosts")) == "aws-g5 on a,user@b"
    profile = load_profile("aws-g5 on a,user@b")
    assert (profile.backend, profile.name, hosts_of(profile, None)) == ("hosts", "aws-g5", ["a", "user@b"])
    assert profile.node_type(None).gpus == 1


def test_hosts_that_are_none(run: Run, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SWEEP)
    (tmp_path / "pair.yaml").write_text(PROFILE % "python3")
    (tmp_path / "none").write_text("# nobody\n")
    assert "--hosts none: no host." in refused(run, "plan", "small.yaml", "--hosts", "none")
    with pytest.raises(UsageError, match="names no hosts"):
        hosts_of(load_profile("rcc"), "v100")


def test_a_copy_has_a_name_that_no_shell_takes_apart_and_no_later_study_has(tmp_path: Path) -> None:
    study = Study(tmp_path / "it's $(here)")
    name = name_elsewhere(study)
    assert name_elsewhere(study) == name
    assert re.fullmatch(r"[\w.-]+", name)
    shutil.rmtree(study.folder)
    assert name_elsewhere(study) != name


@pytest.mark.parametrize("given", ["-oProxyCommand=x", "fe80::1", "a;b", "$(b)", "a:22", "a[1-2]", "user@@a", "@a", ".", "-x@a"])
def test_what_is_no_name_of_a_host_reaches_no_shell(given: str) -> None:
    with pytest.raises(UsageError, match="is no host's name"):
        cluster_on(None, given)


@pytest.mark.dear
def test_what_was_deleted_does_not_come_back(user: User) -> None:
    """Nothing of a run stays on the hosts."""
    user.hpcddp("submit", "small.yaml", "-y", "--wait")
    shutil.rmtree(next((user.home / "small").glob("n02*/r1")))
    user.hpcddp("submit", "small.yaml", "-y", "--wait")
    assert [path.name for path in (user.home / "small").glob("n02*/r1/*")] == ["L0002.0"]
    shutil.rmtree(user.home / "small")
    before_ns = time.time_ns()
    user.hpcddp("submit", "small.yaml", "-y", "--wait")
    end = json.loads(next((user.home / "small").glob("n02*/r1/*/end.json")).read_text())
    assert end["ended_unix_ns"] > before_ns


@pytest.mark.dear
def test_records_that_cannot_be_fetched_fail_the_run_with_the_reason(user: User) -> None:
    """The rsync of this machine sends, and brings nothing."""
    rsync = Path(user.env["PATH"].split(":")[0]) / "rsync"
    brings = 'for last; do :; done; [ "$last" = . ]'
    rsync.write_text(f'#!/bin/sh\nif {brings}; then echo no line >&2; exit 12; fi\nexec {shutil.which("rsync")} "$@"\n')
    rsync.chmod(0o755)
    user.hpcddp("submit", "small.yaml", "-y", "--wait", code=1)
    assert user.run()["detail"].startswith(
        "node2: the run's records could not be fetched: no line. They are in .cache/hpcddp/hosts/small-"
    )


@pytest.mark.dear
def test_a_key_that_goes_is_not_needed_again(user: User) -> None:
    """Somebody logs out, and the agent goes: runs begin and end by the connection that is there."""
    user.hpcddp("submit", "small.yaml", "--set", "repeat=2", "-y")
    wait_for(lambda: list((user.home / "small").glob("n02*/r1/*/launch.json")))
    (user.hosts.folder / "key").unlink()
    wait_for(lambda: len(list((user.home / "small").glob("n02*/r*/*/end.json"))) == 2)


@pytest.mark.dear
def test_one_machine_by_two_names_is_refused(user: User) -> None:
    twice = user.hpcddp("submit", "small.yaml", "--hosts", "node1,root@node1", "-y", code=2)
    assert "root@node1 and node1 are one machine. Name it once." in twice


def test_a_shell_that_hangs_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(hosts_run, "START_S", 0.4)
    assert hosts_run.reach("node1") == "no command ended there within 0 s"


def test_no_connection_is_kept_where_others_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_321)
    folder = Path("/tmp/hpcddp-4000000321")
    folder.mkdir()
    folder.chmod(0o777)
    try:
        with pytest.raises(hosts_run.HostError, match="is not a folder of yours alone"):
            hosts_run.ssh("LogLevel=ERROR")
    finally:
        folder.rmdir()


@pytest.mark.parametrize(("printed", "greeting"), [("hello\n", "hello"), ("\x1b]0;title\x07", r"\x1b]0;title\x07"), ("", "")])
def test_what_a_shell_prints_is_told_from_the_answer(printed: str, greeting: str) -> None:
    command = ["printf", "%s", printed + '{"python": "3.11"}\n']
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert hosts._answer(process) == {"python": "3.11", "greeting": greeting}


def test_gpus_of_a_host_that_another_run_has_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes on them are that run's own; of anybody else's a run would be slowed down."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 41\necho 42\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert host_facts()["busy"] == 2
    held = take_host("small, n02")
    assert isinstance(held, int)
    assert host_facts()["busy"] == 0
    os.close(held)
    assert host_facts()["busy"] == 2
