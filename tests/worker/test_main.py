"""Where caches of compiled code lie in a job: on the node, in a folder that nobody else can have filled."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Literal

import pytest

from hpcddp.core.jobspec import JobSpec, spec_to_dict
from hpcddp.worker import main
from hpcddp.worker.main import VARIABLES, node_caches, place_caches, remove_caches
from hpcddp.worker.ranks import Rank, this_rank
from tests.worker import given
from tests.worker.test_ranks import SLURM


@pytest.fixture
def rank() -> Rank:
    """Of job 4711."""
    return this_rank("slurm", SLURM)


def test_all_in_a_folder_of_the_attempt(rank: Rank, tmp_path: Path) -> None:
    """Made once for all ranks of the node, closed to others; a requeued job has another one."""
    env = {"TMPDIR": str(tmp_path)}
    place_caches(rank, env)
    place_caches(rank, {"TMPDIR": str(tmp_path)})
    folder = tmp_path / f"hpcddp-{os.getuid()}-4711-0"
    assert {Path(env[name]).parent for name in VARIABLES} == {folder}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert node_caches(dataclasses.replace(rank, restart=1), env) != folder
    (folder / "triton").mkdir()
    remove_caches(rank, env)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "expected"),
    [(("SLURM_TMPDIR", "TMPDIR"), "SLURM_TMPDIR"), (("TMPDIR",), "TMPDIR"), ((), None)],
)
def test_the_jobs_own_disk_comes_first(rank: Rank, tmp_path: Path, names: tuple[str, ...], expected: str | None) -> None:
    """Of what the site names, the first that is there: a container may not show it."""
    env = {name: str(tmp_path / name) for name in ("SLURM_TMPDIR", "TMPDIR")}
    for name in names:
        (tmp_path / name).mkdir()
    assert node_caches(rank, env).parent == (Path(env[expected]) if expected else Path("/tmp"))


def test_what_is_placed_already_stays(rank: Rank, tmp_path: Path) -> None:
    """By the user or by the site's modules."""
    env = {"TMPDIR": str(tmp_path), "TRITON_CACHE_DIR": "/mine"}
    place_caches(rank, env)
    assert env["TRITON_CACHE_DIR"] == "/mine"
    assert env["MIOPEN_USER_DB_PATH"].startswith(str(tmp_path))


@pytest.mark.parametrize("kind", ["open to others", "a link", "a file"])
def test_a_folder_that_somebody_else_may_have_filled(rank: Rank, tmp_path: Path, kind: str) -> None:
    """Nothing is placed there: what lies in a cache is run."""
    env = {"TMPDIR": str(tmp_path)}
    folder = node_caches(rank, env)
    if kind == "open to others":
        folder.mkdir()
        folder.chmod(0o777)
    elif kind == "a link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        folder.symlink_to("theirs")
    else:
        folder.touch()
    place_caches(rank, env)
    assert env == {"TMPDIR": str(tmp_path)}


@pytest.mark.parametrize(("device", "placed"), [("cuda", True), ("cpu", False)])
def test_a_worker_places_and_removes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Literal["cuda", "cpu"], placed: bool
) -> None:
    """Before torch is imported, and where it compiles for a GPU."""
    for name, value in {**SLURM, "SLURM_LOCALID": "0", "TMPDIR": str(tmp_path), "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    found: list[bool] = []

    def attempt(*_: Any) -> dict[str, object]:
        found.append(os.path.isdir(os.path.dirname(os.environ.get("TRITON_CACHE_DIR", "/nowhere/x"))))
        return {}

    monkeypatch.setattr(main, "_run_attempt", attempt)
    monkeypatch.setattr(main, "block_stop_signal", lambda: None)
    point = dataclasses.replace(given.point(1, steps=1), device=device)
    main.run(spec_to_dict(JobSpec(point=point, study=str(tmp_path / "study"))))
    assert found == [placed]
    assert not list(tmp_path.glob("hpcddp-*"))
