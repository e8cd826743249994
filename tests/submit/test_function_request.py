"""Which modules travel with a function."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcddp.submit.function_request import own_modules, search_path


@pytest.mark.dear
def test_loaded_modules_of_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module and a package of the user's own, by their top names; neither what is installed nor what is not loaded."""
    (tmp_path / "a_net.py").write_text("")
    (tmp_path / "another.py").write_text("")
    (tmp_path / "some_nets" / "deep").mkdir(parents=True)
    (tmp_path / "some_nets" / "__init__.py").write_text("")
    (tmp_path / "some_nets" / "deep" / "res.py").write_text("")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "installed_net.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(own_modules())
    for name in ("a_net", "some_nets.deep.res", "installed_net", "some_nets", "some_nets.deep"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        __import__(name)
    assert set(own_modules()) - before == {"a_net", "some_nets"}
    assert not {"json", "submitit", "pytest", "__main__"} & {*before}
    assert search_path()[0] == tmp_path
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    assert "a_net" not in own_modules()  # a job would not find it by that name
