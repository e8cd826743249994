"""What another user planted never runs as this one, and nothing is written where a planted link leads."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from submitit.core.utils import DelayedSubmission

from hpcddp.backends.local import LocalBackend
from hpcddp.cluster.ownership import group_above, trusted_gids
from hpcddp.cluster.settings import load_settings
from hpcddp.core.errors import HpcddpError
from hpcddp.core.launcher import call
from hpcddp.core.run_root import Study
from hpcddp.study.study_folder import study_lock
from hpcddp.submit.snapshot import take_snapshot
from hpcddp.submit.submit import submit_runs
from tests.fake_slurm import FakeBackend
from tests.given_plan import study_of, submission_plan
from tests.machine import NOBODY, as_nobody, need_root


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's settings, which say nothing so far."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "hpcddp").mkdir(parents=True)
    return tmp_path / "config" / "hpcddp" / "config.yaml"


@pytest.fixture
def umask_002() -> Iterator[None]:
    """A project's: the group may write what is made."""
    before = os.umask(0o002)
    yield
    os.umask(before)


def submit(folder: Path) -> FakeBackend:
    """Submits the small sweep of `folder`; what was queued."""
    backend = FakeBackend()
    submit_runs(study_of(folder), submission_plan(folder, "repeat=1", user=load_settings()[0]), backend)
    return backend


def refused(folder: Path, words: str) -> None:
    """The submission is, and nothing reaches the cluster."""
    backend = FakeBackend()
    with pytest.raises(HpcddpError, match=words):
        submit_runs(study_of(folder), submission_plan(folder, "repeat=1"), backend)
    assert backend.queued == {}


def snapshot_of(study: Study) -> Path:
    (found,) = study.code.iterdir()
    return found


def test_a_snapshot_that_another_user_put_in_place_does_not_run(tmp_path: Path) -> None:
    """Its name is public: whoever may write in the run root can have `.code/HASH` there first, with a line of their own."""
    submit(tmp_path)
    study, ours = study_of(tmp_path), snapshot_of(study_of(tmp_path))
    ours.rename(tmp_path / "copied")
    shutil.rmtree(study.folder)
    study.folder.mkdir()
    (tmp_path / "copied").rename(study.folder / "copied")
    study.folder.chmod(0o777)

    def plant() -> None:
        Path(".code").mkdir()
        shutil.copytree("copied", Path(".code", ours.name), copy_function=shutil.copyfile)
        with Path(".code", ours.name, "hpcddp", "core", "launcher.py").open("a") as file:
            file.write("print('as the submitter')\n")

    as_nobody(plant, study.folder)
    refused(tmp_path, r"/\.code belongs to nobody, whose code would run as you: rm -r ")
    study.folder.chmod(0o755)
    refused(tmp_path, r"/\.code belongs to nobody")


@pytest.mark.parametrize("change", ["a line", "a file", "a link"])
def test_a_snapshot_holds_what_its_name_says(tmp_path: Path, change: str) -> None:
    submit(tmp_path)
    shutil.rmtree(study_of(tmp_path).jobs)
    study_of(tmp_path).submissions_file.unlink()
    snapshot = snapshot_of(study_of(tmp_path))
    file = snapshot / "hpcddp" / "core" / "launcher.py"
    if change == "a line":
        file.chmod(0o644)
        file.write_text(file.read_text() + "print('more')\n")
    elif change == "a file":
        (snapshot / "json.py").write_text("")
    else:
        file.rename(tmp_path / "launcher.py")
        file.symlink_to(tmp_path / "launcher.py")
    refused(tmp_path, f"Remove the snapshot and submit again: rm -r {snapshot}")
    shutil.rmtree(snapshot)
    assert submit(tmp_path).queued


@pytest.mark.parametrize("name", [".code", ".jobs", ".jobs/lock", "submissions.jsonl"])
def test_nothing_is_written_where_a_planted_link_leads(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch() if name.endswith("jsonl") else elsewhere.mkdir()
    link = study_of(tmp_path).folder / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    refused(tmp_path, f"{link} is a link")
    assert elsewhere.stat().st_size == 0 if elsewhere.is_file() else not list(elsewhere.iterdir())


@pytest.mark.parametrize("name", ["queue.lock", "runner.lock", "runner.log"])
def test_files_of_the_local_queue_are_not_links_either(tmp_path: Path, name: str) -> None:
    study = study_of(tmp_path)
    study.jobs.mkdir(parents=True)
    (study.jobs / name).symlink_to(tmp_path / "victim")
    with pytest.raises((HpcddpError, OSError), match="Too many levels of symbolic links"):
        submit_runs(study, submission_plan(tmp_path, "repeat=1"), LocalBackend(study))
    assert not (tmp_path / "victim").exists()


def test_a_link_of_ones_own_to_the_study_is_followed(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    study_of(tmp_path).folder.parent.mkdir()
    study_of(tmp_path).folder.symlink_to(tmp_path / "scratch")
    assert submit(tmp_path).queued


@pytest.mark.parametrize(
    ("where", "mode", "words"),
    [
        (".", 0o777, "may be written by everybody, .*: chmod o-w "),
        (".", 0o775, "may be written by group nogroup, .*: chmod g-w .*, or put `trusted_groups: .nogroup.` into your settings"),
        (".code", 0o775, r"/\.code may be written by group nogroup"),
        (".jobs", 0o775, r"/\.jobs may be written by group nogroup"),
        ("..", 0o777, "/runs may be written by everybody"),
    ],
)
def test_folders_that_others_may_write_are_refused(tmp_path: Path, where: str, mode: int, words: str) -> None:
    need_root()
    folder = Path(os.path.normpath(study_of(tmp_path).folder / where))
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, -1, NOBODY)
    folder.chmod(mode)
    refused(tmp_path, words)
    folder.chmod(0o755)
    assert submit(tmp_path).queued


def test_folders_of_one_fault_are_one_sentence(tmp_path: Path) -> None:
    need_root()
    submit(tmp_path)
    study = study_of(tmp_path)
    folders = [study.folder, study.code, study.jobs, study.submit_lock]
    for folder in folders:
        os.chown(folder, -1, NOBODY)
        folder.chmod(0o2775)
    with pytest.raises(HpcddpError) as caught:
        submit(tmp_path)
    assert str(caught.value) == (
        f"{study.folder} and 3 more may be written by group nogroup, whose code would run as you: "
        f"chmod g-w {' '.join(map(str, folders))}, or put `trusted_groups: [nogroup]` into your settings"
    )


def test_another_users_study_is_refused(tmp_path: Path) -> None:
    """Whoever owns a folder may always write there."""
    need_root()
    study_of(tmp_path).folder.mkdir(parents=True)
    os.chown(study_of(tmp_path).folder, NOBODY, -1)
    refused(tmp_path, "small belongs to nobody, whose code would run as you: give another folder with --runs")


def test_settings_may_trust_a_group(tmp_path: Path, config: Path) -> None:
    need_root()
    config.write_text("trusted_groups: [nogroup]\n")
    folder = study_of(tmp_path).folder
    folder.mkdir(parents=True)
    os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o2775)
    assert {request.trusted for request in submit(tmp_path).queued.values()} == {(NOBODY,)}


def test_a_group_that_is_not_there_is_refused(tmp_path: Path, config: Path) -> None:
    config.write_text("trusted_groups: [nosuchgroup]\n")
    with pytest.raises(HpcddpError, match=r"trusted_groups: .*nosuchgroup.*; `id -Gn` lists yours"):
        submit(tmp_path)


def test_a_project_folder_is_an_ordinary_place(tmp_path: Path, umask_002: None) -> None:
    need_root()
    project = study_of(tmp_path).folder.parent
    project.mkdir()
    os.chown(project, -1, NOBODY)
    project.chmod(0o2775)
    assert submit(tmp_path).queued
    study = study_of(tmp_path)
    code = [study.folder, study.jobs, study.code, *study.code.rglob("*")]
    assert [path for path in code if stat.S_IMODE(path.stat().st_mode) & 0o022] == []
    assert stat.S_IMODE(next(study.folder.glob("n*")).stat().st_mode) & 0o020
    submit(tmp_path)


@pytest.mark.parametrize(
    ("mode", "trust", "said"), [(0o2775, "", True), (0o2775, "nogroup", False), (0o3775, "", False), (0o755, "", False)]
)
def test_a_group_above_the_study_is_remarked(tmp_path: Path, config: Path, mode: int, trust: str, said: bool) -> None:
    """Members of a project's group can put another study in its place, unless the folder is sticky: the user shall know."""
    need_root()
    config.write_text(f"trusted_groups: [{trust}]\n")
    project = tmp_path / "project"
    (project / "me").mkdir(parents=True)
    os.chown(project, -1, NOBODY)
    project.chmod(mode)
    sentence = group_above(study_of(project / "me"), trusted_gids())
    words = f"{project} may be written by group nogroup, who could replace this study and its code"
    assert (sentence is not None) == said
    assert sentence is None or sentence.startswith(words)


def job(study: Study, code: Path) -> subprocess.CompletedProcess[str]:
    """The start of a rank: bootstrap, pickle, function."""
    folder = study.jobs / "x.t"
    folder.mkdir(parents=True, exist_ok=True)
    DelayedSubmission(call, "builtins:print", {"ran": 1}).dump(folder / "7_submitted.pkl")
    env = {"PATH": os.environ["PATH"], "SUBMITIT_EXECUTOR": "local", "SUBMITIT_LOCAL_JOB_ID": "7"}
    command = [sys.executable, "-u", str(code / "bootstrap.py"), str(folder)]
    return subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=180)


@pytest.mark.parametrize("planted", [".", ".code", "SNAPSHOT", ".jobs", ".jobs/x.t"])
def test_a_job_looks_who_owns_what_it_runs(tmp_path: Path, planted: str) -> None:
    need_root()
    study = Study(tmp_path / "study")
    code = take_snapshot(study, [])
    done = job(study, code)
    assert "{'ran': 1}" in done.stdout, done.stderr
    folder = code if planted == "SNAPSHOT" else study.folder / planted
    os.chown(folder, NOBODY, -1)
    done = job(study, code)
    assert done.returncode == 1
    assert "ran" not in done.stdout
    assert f"hpcddp: {folder.resolve()} belongs to nobody, whose code would run as you" in done.stderr


def test_a_job_trusts_the_groups_that_its_command_names(tmp_path: Path) -> None:
    need_root()
    study = Study(tmp_path / "study")
    code = take_snapshot(study, ["echo:x"], near=[echo(tmp_path)])
    os.chown(study.code, -1, NOBODY)
    study.code.chmod(0o775)
    command = [sys.executable, str(code / "bootstrap.py"), "--module", "echo", str(study.folder)]
    assert "may be written by group nogroup" in subprocess.run(command, check=False, capture_output=True, text=True).stderr
    command[2:2] = ["--trust", f"4711,{NOBODY}"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == f"['{study.folder}']\n"


def echo(folder: Path) -> Path:
    """Where a module is that prints its arguments."""
    (folder / "echo.py").write_text("import sys\nprint(sys.argv[1:])\n")
    return folder


def test_whatever_changes_a_study_follows_no_link(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    study.folder.mkdir(parents=True)
    study.jobs.symlink_to(tmp_path)
    with pytest.raises(HpcddpError, match=r"\.jobs is a link"), study_lock(study):
        raise AssertionError("held")
    assert not (tmp_path / "lock").exists()
