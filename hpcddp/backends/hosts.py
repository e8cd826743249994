"""Hosts by ssh as a cluster: the queue and the runner of this machine (local.py), whose runs are torchrun on each of the hosts.

The runner goes on when this terminal closes. A host has one run at a time, of any of the user's studies.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any

from hpcddp.backends import local_queue as queue
from hpcddp.backends.base import Submission
from hpcddp.backends.hosts_run import START_S, address_of, first_line, reach, ssh
from hpcddp.backends.local import LocalBackend
from hpcddp.cluster.hosts import hosts_of, split_hosts
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import JobSpec, json_lines
from hpcddp.core.launcher import torchrun_options
from hpcddp.core.records import not_for_others, write_file
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.core.text import count, size
from hpcddp.script.render import ScriptLaunch

PROBE = Path(__file__).parents[1] / "worker" / "host_probe.py"
"""What each host runs before anything of hpcddp is there."""

FIRST = '{"python": '
"""How its line begins, whatever a shell prints before it."""

LEAST_FREE_BYTES = 100 * 2**20
"""A snapshot has two MiB, and a long run's records some tens."""

NAME_PYTHON = "Name its environment under `compute` of the profile."
NEW_KEY = "Host key verification failed"
AGAIN = "Submit again when they are free."
ADDRESSES = "Open its ports, or name the hosts by addresses that reach each other."

PORT = 29500
"""torchrun's own, of commands that a person types."""


def launch_on_hosts(launch: ScriptLaunch, profile: ClusterProfile, spec: JobSpec) -> ScriptLaunch:
    """What a person types on each host: the script there, with the host's number."""
    hosts = hosts_of(profile, spec.point.layout.node_type)[: spec.point.layout.nodes]
    meet = f"PET_MASTER_ADDR={hosts[0].rpartition('@')[2]} PET_MASTER_PORT={PORT}"
    started = ((host, f"PET_NODE_RANK={rank} {meet} {launch.command}") for rank, host in enumerate(hosts))
    return dataclasses.replace(launch, hosts=tuple(started))


class HostsBackend(LocalBackend):
    """Job ids are the study's own, as on this machine."""

    name = "hosts"

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        self._probed: set[tuple[str, ...]] = set()

    def check(self, submission: Submission) -> None:
        """UsageError with all that keeps the hosts from training together; each set of hosts is probed once."""
        point, hosts = submission.spec.point, _hosts(submission)
        if len(hosts) < point.layout.nodes:
            raise UsageError(
                f"{submission.spec.label}: layout.nodes is {point.layout.nodes}, and there are {count(len(hosts), 'host')}"
            )
        used = tuple(hosts[: point.layout.nodes])
        if used not in self._probed:
            problems = list(_problems(used, submission))
            if problems:
                raise UsageError("\n".join(problems))
            self._probed.add(used)

    def _add(self, submission: Submission) -> str:
        """With the script that each host runs."""
        point = submission.spec.point
        entry = dataclasses.replace(self._entry(submission), hosts=tuple(_hosts(submission)))
        spec = dataclasses.replace(submission.spec, study="$HPCDDP_STUDY")
        bootstrap = f".code/{submission.code.name}/bootstrap.py"
        node = f'--module hpcddp.worker.host_node ".jobs/$HPCDDP_JOB" "$HPCDDP_WHO" {torchrun_options(point)}'
        text = _script(
            submission, f"{submission.python} -u {bootstrap} {node}", spec=json_lines(encode(spec, keep_defaults=False))
        )
        with not_for_others(submission.trusted):
            job = queue.add(self._study, entry)
            write_file(self._study.job_dir(job) / "job.sh", text)
        return job


def _hosts(submission: Submission) -> list[str]:
    types: Any = submission.spec.profile["node_types"]
    return split_hosts(types[submission.spec.point.layout.node_type or submission.spec.profile["default_node_type"]]["names"])


def _script(submission: Submission, command: str, spec: str | None = None) -> str:
    assert submission.render_text is not None
    return submission.render_text(ScriptLaunch(command=command, spec=spec))


def _problems(hosts: Sequence[str], submission: Submission) -> Iterator[str]:
    """A sentence for each host that does not answer, has other software or too few free GPUs, or does not reach the first one."""
    if unreached := {host: why for host in hosts if (why := reach(host))}:
        for host, why in unreached.items():
            test = f"Test it with `ssh -o BatchMode=yes {host} true`"
            yield f"{host} does not answer: {why}. {f'Run `ssh {host}` once, and check the key' if why == NEW_KEY else test}."
        return
    first, address, point = hosts[0], address_of(hosts[0]), submission.spec.point
    gpus = point.layout.gpus_per_node if point.device == "cuda" else 0
    listening = _probe(first, submission, "listen", len(hosts) - 1)
    found = {first: _answer(listening)}
    others = {host: _probe(host, submission, "connect", address, found[first].get("port", 0)) for host in hosts[1:]}
    found |= {host: _answer(process) for host, process in others.items()}
    listening.kill()
    mine, machines = found[first], dict[str, str]()
    for host, facts in found.items():
        if "error" in facts:
            yield f"{host} has no Python that answers: {facts['error']}. Test `ssh {host} {submission.python} -V`. {NAME_PYTHON}"
            continue
        other = machines.setdefault(facts["machine"], host)
        where = f"{first} at {address}, port {mine.get('port')}"
        is_other = "error" not in mine and None not in (facts["torch"], mine["torch"]) and _software(facts) != _software(mine)
        checks = (
            (other != host, f"{host} and {other} are one machine. Name it once."),
            (facts["greeting"], f"{host} prints `{facts['greeting']}` in every shell, which breaks rsync. Print it in none."),
            (not facts["rsync"], f"{host} has no rsync. Install it there."),
            (
                facts["free_bytes"] < LEAST_FREE_BYTES,
                f"{host} has {size(facts['free_bytes'])} free in the home folder. Free some.",
            ),
            (facts["torch"] is None, f"{host} has no torch in its Python {facts['python']}. {NAME_PYTHON}"),
            (facts["gpus"] < gpus, f"{host} has {count(facts['gpus'], 'GPU')} for torch, and the point needs {gpus}."),
            (gpus and facts["busy"], f"{host}: {facts['busy']} processes are on its GPUs (`nvidia-smi`). {AGAIN}"),
            (is_other, f"{host} has {_software(facts)}, and {first} has {_software(mine)}. Install the same."),
            (facts.get("reaches") is False and "error" not in mine, f"{host} does not reach {where}. {ADDRESSES}"),
        )
        yield from (text for holds, text in checks if holds)


def _software(facts: Mapping[str, Any]) -> str:
    return f"Python {facts.get('python')} with torch {facts.get('torch')}"


def _probe(host: str, submission: Submission, *arguments: object) -> subprocess.Popen[str]:
    text = shlex.quote(PROBE.read_text(encoding="utf-8"))
    script = _script(submission, f"{submission.python} -c {text} {' '.join(map(str, arguments))}")
    process = subprocess.Popen([*ssh(), host, "bash -s"], stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(script)
    process.stdin.close()
    return process


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    assert process.stderr is not None
    greeting, patience = "", threading.Timer(START_S, process.kill)
    patience.start()
    for line in process.stdout:
        before, found, facts = line.partition(FIRST)
        greeting = greeting or ascii(before.strip())[1:-1]
        if found:
            patience.cancel()
            return {**json.loads(found + facts), "greeting": greeting}
    patience.cancel()
    return {"error": first_line(process.stderr.read())}
