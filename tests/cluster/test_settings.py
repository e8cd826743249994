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


def test_no_file_is_no_settings(tmp_path: Path) -> None:
    assert load_settings({"XDG_CONFIG_HOME": str(tmp_path)}) == (Settings(), [])


@pytest.mark.parametrize("text", ["", "# nothing yet\n"])
def test_empty_file_is_no_settings(tmp_path: Path, text: str) -> None:
    assert load_settings(written(tmp_path, text)) == (Settings(), [])


def test_file_is_read_and_text_stays_text(tmp_path: Path) -> None:
    text = "account: no\nreservation: r1\nmail: me@site.org\nrun_root: $WORK/runs\ndata_roots: {imagenet: $WORK/in}\n"
    settings, remarks = load_settings(written(tmp_path, text))
    assert settings == Settings(
        account="no", reservation="r1", mail="me@site.org", run_root="$WORK/runs", data_roots={"imagenet": "$WORK/in"}
    )
    assert remarks == []


def test_unknown_key_is_refused_with_its_line(tmp_path: Path) -> None:
    env = written(tmp_path, "mail: me@site.org\nacount: abc\n")
    with pytest.raises(UsageError) as caught:
        load_settings(env)
    assert str(caught.value).startswith(f"{config_file(env)}:2:1: unknown key `acount`")
    assert "`account`" in str(caught.value)


@pytest.mark.parametrize(("text", "place"), [("run_root: runs\n", "1:1"), ("data_roots:\n  imagenet: data/in\n", "2:3")])
def test_relative_folder_is_refused(tmp_path: Path, text: str, place: str) -> None:
    """A job does not stand where the settings are read: folders are given in full, or begin with a variable."""
    env = written(tmp_path, text)
    with pytest.raises(UsageError, match="is relative") as caught:
        load_settings(env)
    assert str(caught.value).startswith(f"{config_file(env)}:{place}: ")


def test_sbatch_account_and_reservation_win_and_are_said(tmp_path: Path) -> None:
    env = {**written(tmp_path, "account: abc\n"), "SBATCH_ACCOUNT": "xyz", "SBATCH_RESERVATION": "r2"}
    settings, remarks = load_settings(env)
    assert (settings.account, settings.reservation) == ("xyz", "r2")
    own = "unless the sweep names its own"
    assert remarks == [
        f"account xyz is taken from SBATCH_ACCOUNT, {own}",
        f"reservation r2 is taken from SBATCH_RESERVATION, {own}",
    ]


def test_other_sbatch_variables_are_set_aside_and_said(tmp_path: Path) -> None:
    settings, remarks = load_settings({"XDG_CONFIG_HOME": str(tmp_path), "SBATCH_PARTITION": "debug"})
    assert settings == Settings()
    assert remarks == ["SBATCH_PARTITION=debug is set aside: sweep and profile say what a job asks for"]


def test_relative_config_home_is_ignored() -> None:
    assert config_file({"XDG_CONFIG_HOME": "conf"}) == Path.home() / ".config" / "hpcddp" / "config.yaml"
