"""docs/clusters.md: every command in it runs, every key of a profile is in it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.detect.trial import TrialVerdict
from tests.commands.conftest import Run, run
from tests.detect.given_live import ONE, detected_text
from tests.docs.pages import CLUSTERS_FILE, profile_keys
from tests.test_packaging import empty_wheel, offline

__all__ = ["run"]  # a fixture

PAGE = CLUSTERS_FILE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGE, re.MULTILINE)
ELSEWHERE = re.compile(r"^## (?:Hosts by ssh|SageMaker)\n.*?(?=^## |^<!-- )", re.MULTILINE | re.DOTALL)
"""Sections whose commands run against a stand-in: tests/backends."""
COMMANDS = [line.strip() for line in ELSEWHERE.sub("", PAGE).split("\n") if line.startswith("    hpcddp ")]

LIVE = replace(ONE, associations=tuple(replace(each, account="abc01") for each in ONE.associations or ()))
"""What Slurm answers on the machine of whoever reads the page."""


def named_files() -> dict[str, str]:
    """Files that blocks of the page show, by the name in their first line."""
    texts = ["\n".join(line[4:] for line in block.split("\n")) for block in BLOCKS]
    named = [(re.match(r"# (\S+\.yaml)\n", text.lstrip("\n")), text.lstrip("\n")) for text in texts]
    return {found[1]: text for found, text in named if found}


@pytest.fixture
def reader(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the page names, on a machine whose Slurm answers."""
    verdict = TrialVerdict(gpu_request="gres", accounts=("abc01",), account_required=True)
    monkeypatch.setattr("hpcddp.detect.detect.read_live", lambda deadline_s: LIVE)
    monkeypatch.setattr("hpcddp.detect.check.read_live", lambda deadline_s: LIVE)
    monkeypatch.setattr("hpcddp.detect.detect.try_requests", lambda *_: verdict)
    monkeypatch.setattr("hpcddp.submit.small_jobs.run_survey", _no_job)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    (tmp_path / ".config" / "hpcddp" / "clusters").mkdir(parents=True)
    for name, text in named_files().items():
        Path(name).expanduser().write_text(text)
    (tmp_path / "theirs.yaml").write_text(detected_text(LIVE, verdict))
    (tmp_path / "mine.sh.j2").write_text('{% extends "base.sh.j2" %}\n{% block teardown %}\necho bye\n{% endblock %}\n')
    return tmp_path


def _no_job(*_: Any, **__: Any) -> Any:
    from hpcddp.core.job_records import SurveyRecord

    return SurveyRecord(job="7", date="2026-01-01", nodes=())


@pytest.mark.dear
def test_every_command_runs(reader: Path, run: Run) -> None:
    run("render", "--cluster", "rcc", "--set", "account=abc01", "-o", "job.sh")
    assert len(COMMANDS) > 10
    for command in COMMANDS:
        words = shlex.split(command, comments=True)[1:]
        target = words[words.index(">") + 1] if ">" in words else None
        result = run(*(words[: words.index(">")] if target else words))
        assert result.exit_code == 0, f"{command}: {result.output}"
        if target:
            Path(target).expanduser().write_text(result.stdout)


def test_shown_profiles_are_read(reader: Path) -> None:
    names = [name for name in named_files() if "clusters/" in name or name.startswith("site")]
    assert len(names) >= 2
    for name in names:
        assert load_profile(str(Path(name).expanduser())).node_types


@pytest.mark.dear
def test_the_lines_that_make_an_environment(tmp_path: Path) -> None:
    (lines,) = (re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in BLOCKS if "python3 -m venv" in block)
    for name, version in (("torch", "2.9.1"), ("torchvision", "0.24.1")):
        empty_wheel(tmp_path, name, version, "py3-none-any")
    (tmp_path / "mksquashfs").write_text("#!/bin/sh\necho $* > $2\n")
    (tmp_path / "mksquashfs").chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, **offline(tmp_path), "PATH": path, "WORK": str(tmp_path)}
    subprocess.run(["bash", "-ec", lines], env=env, check=True, timeout=300)
    assert (tmp_path / "env.lock").read_text() == "torch==2.9.1\ntorchvision==0.24.1\n"
    assert (tmp_path / "env.sqfs").read_text() == f"{tmp_path}/env {tmp_path}/env.sqfs -noappend -quiet\n"


def test_other_yaml_is_yaml() -> None:
    fragments = ["\n".join(line[4:] for line in block.split("\n")).strip() for block in BLOCKS if "hpcddp " not in block]
    for text in fragments:
        for part in text.split("\n") if text.startswith("compute: {") else [text]:
            if re.match(r"(# \S+\.yaml|\w+:)", part):
                assert isinstance(parse_yaml(part, "the page"), dict), part


def section(path: str) -> str:
    """The table of a part of the profile."""
    heading = f"### `{path}`\n" if path else "### The profile\n"
    return PAGE.partition(heading)[2].partition("\n### ")[0]


def test_every_key_of_a_profile_is_there() -> None:
    missing = []
    for key in profile_keys():
        path, _, name = key.rpartition(".")
        missing += [] if f"\n| `{name}` |" in section(path) else [key]
    assert missing == []
    assert all(f"\n| `{name}` |" in PAGE for name in ("value", "grade", "source", "note", "conflicts"))
