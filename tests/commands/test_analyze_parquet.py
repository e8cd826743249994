"""`hpcddp analyze --to parquet`: each table with its types, beside its CSV."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.analysis.synthetic import MS, point, write_marconi100, write_runs, write_study
from tests.commands.conftest import Run


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take longer than all else, and have tests of their own."""
    monkeypatch.setattr("hpcddp.analysis.figures.figures.study_drawings", lambda *_: ({}, []))


def shown(value: object) -> str:
    """A cell as CSV has it: unknown and empty are the same there."""
    return "" if pd.isna(value) else str(value)  # type: ignore[call-overload]


@pytest.mark.dear
def test_every_table_is_there_with_its_types(run: Run, tmp_path: Path) -> None:
    """The same rows as in the CSV file, to its digits; whole numbers are whole, unknown is null; the report names the files."""
    write_marconi100(tmp_path / "m100")
    result = run("analyze", "m100", "--to", "parquet")
    assert result.exit_code == 0, result.output
    report = tmp_path / "m100" / "report"
    names = {file.stem for file in report.glob("*.parquet")}
    assert names == {file.stem for file in report.glob("*.csv")} >= {"scaling", "breakdown", "runs"}
    assert {f"{name}.parquet" for name in names} <= set(json.loads((report / "report.json").read_text())["files"])
    for name in names:
        typed, text = pd.read_parquet(report / f"{name}.parquet"), pd.read_csv(report / f"{name}.csv")
        assert list(typed.columns) == list(text.columns)
        for column in text:
            if pd.api.types.is_numeric_dtype(typed[column].dtype) and not pd.api.types.is_bool_dtype(typed[column].dtype):
                found = typed[column].to_numpy(float, na_value=np.nan)
                np.testing.assert_allclose(found, text[column].to_numpy(float), rtol=1e-8, equal_nan=True)
            else:
                assert list(map(shown, typed[column])) == list(map(shown, text[column]))
    scaling = pd.read_parquet(report / "scaling.parquet")
    assert (str(scaling["nodes"].dtype), str(scaling["samples_per_s"].dtype)) == ("Int64", "Float64")


@pytest.mark.dear
def test_none_of_an_earlier_analysis_is_left(run: Run, tmp_path: Path) -> None:
    """Given again without it, the report has CSV only."""
    write_marconi100(tmp_path / "m100")
    run("analyze", "m100", "--to", "parquet")
    assert run("analyze", "m100").exit_code == 0
    report = tmp_path / "m100" / "report"
    assert (list(report.glob("*.parquet")), (report / "scaling.csv").is_file()) == ([], True)


def test_without_pyarrow_it_says_what_to_install(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, before anything is read or written; of several studies too."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in ("a", "b"):
        study = write_study(tmp_path / "runs" / name, [point(1, 1)])
        write_runs(study, point(1, 1), [MS])
    result = run("analyze", "runs", "--to", "parquet")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "pyarrow is not installed here: pip install 'hpcddp[parquet]'" in result.stderr
    assert list(tmp_path.rglob("report")) == []


def test_text_does_nothing_to_a_terminal(run: Run, tmp_path: Path) -> None:
    """Tools print what they read: escape sequences in records are escaped here, too."""
    study = write_study(tmp_path / "s", [point(1, 1)])
    write_runs(study, point(1, 1), [MS], gpu="V\x1b[2J100")
    run("analyze", "s", "--to", "parquet")
    texts = pd.read_parquet(tmp_path / "s" / "report" / "runs.parquet").to_string()
    assert "\x1b" not in texts
    assert r"\x1b[2J100" in texts
