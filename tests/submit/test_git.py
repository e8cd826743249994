"""The commit on record."""

import subprocess
from pathlib import Path

from hpcddp.submit.git import git_commit


def test_commit_is_that_of_the_sweeps_folder(tmp_path: Path) -> None:
    """The commit, a plus with local changes, None outside a repository."""
    assert git_commit(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@x"]
    (tmp_path / "file").write_text("1")
    for command in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "m"]):
        subprocess.run([*git, *command], check=True)
    commit = git_commit(tmp_path)
    assert commit is not None
    assert len(commit) == 40
    (tmp_path / "file").write_text("2")
    assert git_commit(tmp_path) == f"{commit}+"
