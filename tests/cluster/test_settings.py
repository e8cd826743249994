"""The user's settings file, and what of the environment reaches Slurm."""

from pathlib import Path

import pytest

from hpcddp.cluster.settings import Settings, config_file, load_settings
from hpcddp.core.errors import UsageError


def written(folder: Path, text: str) -> dict[str, str]:
    """An environment whose settings file holds `text`."""
    file = folder / "hpcddp" / "config.yaml"
    file.parent.mkdir()
    file.write_text(text)
    return {"XDG_CONFIG_HOME": str(folder)}


@pytest.mark.parametrize("text", [None, "", "# nothing yet\n"])
def test_no_file_is_no_settings(tmp_path: Path, text: str | None) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path)} if text is None else written(tmp_path, text)
    assert load_settings(env) == (Settings(), [])


def test_file_is_read_and_text_stays_text(tmp_path: Path) -> None:
    text = "account: no\nreservation: r1\nmail: me@site.org\nrun_root: $WORK/runs\ndata_roots: {imagenet: $WORK/in}\n"
    settings, remarks = load_settings(written(tmp_path, text))
    others = {"run_root": "$WORK/runs", "data_roots": {"imagenet": "$WORK/in"}}
    assert settings == Settings(account="no", reservation="r1", mail="me@site.org", **others)  # type: ignore[arg-type]
    assert remarks == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mail: me@site.org\nacount: abc\n", "2:1: unknown key `acount`; did you mean `account`?"),
        ("run_root: runs\n", "1:1: `runs` is relative"),
        ("data_roots:\n  imagenet: data/in\n", "2:3: `data/in` is relative"),
    ],
)
def test_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    """A job does not stand where the settings are read: folders are given in full, or begin with a variable."""
    env = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load_settings(env)
    assert str(caught.value).startswith(f"{config_file(env)}:{complaint}")


def test_of_sbatch_variables_account_and_reservation_count(tmp_path: Path) -> None:
    env = {**written(tmp_path, "account: abc\n"), "SBATCH_ACCOUNT": "xyz", "SBATCH_RESERVATION": "r2", "SBATCH_QOS": "debug"}
    settings, remarks = load_settings(env)
    assert settings == Settings(account="xyz", reservation="r2")
    own = "unless the sweep names its own"
    assert remarks == [
        f"account xyz is taken from SBATCH_ACCOUNT, {own}",
        "SBATCH_QOS=debug is ignored: jobs follow the sweep and the profile",
        f"reservation r2 is taken from SBATCH_RESERVATION, {own}",
    ]


def test_relative_config_home_is_ignored() -> None:
    assert config_file({"XDG_CONFIG_HOME": "conf"}) == Path.home() / ".config" / "hpcddp" / "config.yaml"
