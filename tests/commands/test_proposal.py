"""`hpcddp proposal` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.synthetic import MS, point, write_marconi100, write_runs, write_study
from tests.commands.conftest import Run, files


@pytest.mark.dear
def test_the_page_goes_to_stdout(run: Run, tmp_path: Path) -> None:
    """Without -o nothing is written."""
    write_marconi100(tmp_path / "m100")
    before = files(tmp_path)
    result = run("proposal", "m100", "--epochs", "90")
    assert (result.exit_code, result.stderr, files(tmp_path) == before) == (0, "", True)
    assert result.stdout.startswith("# Scaling and resources: m100\n")


def test_a_terminal_acts_on_nothing_in_a_name(run: Run, tmp_path: Path) -> None:
    """Here a GPU's: records and bundles come from others."""
    study = write_study(tmp_path / "s", [point(1, 1)])
    write_runs(study, point(1, 1), [MS], gpu="V\x1b[2J100")
    stdout = run("proposal", "s").stdout
    assert "\x1b" not in stdout
    assert r"V\\x1b\[2J100" in stdout  # Markdown for V\x1b[2J100


@pytest.mark.dear
@pytest.mark.parametrize(("format_", "file", "ending"), [("markdown", "proposal.md", "png"), ("latex", "proposal.tex", "pdf")])
def test_a_folder_holds_page_and_figures(run: Run, tmp_path: Path, format_: str, file: str, ending: str) -> None:
    """Every figure that the page names lies beside it; LaTeX gets one that stays sharp."""
    write_marconi100(tmp_path / "m100")
    result = run("proposal", "m100", "--format", format_, "-o", "out", "--style", "paper")
    assert (result.exit_code, result.stdout) == (0, f"out/{file}\n")
    text = (tmp_path / "out" / file).read_text()
    for name in (f"scaling.{ending}", f"efficiency.{ending}"):
        assert name in text
        assert (tmp_path / "out" / name).is_file()


@pytest.mark.dear
def test_a_bundle_makes_the_same_page(run: Run, tmp_path: Path) -> None:
    """All of it is in the records."""
    write_marconi100(tmp_path / "m100")
    run("bundle", "m100")
    assert run("proposal", "m100.tar.gz").stdout == run("proposal", "m100").stdout


@pytest.mark.dear
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["empty"], "no run of full training counts"),
        (["m100", "--runs", "3"], "--runs counts trainings of --epochs N epochs"),
        (["m100", "--nodes", "3"], "measured: 1, 2, 4, 8, 16"),
        (["config"], "no study in it"),
    ],
)
def test_mistakes_are_named(run: Run, tmp_path: Path, arguments: list[str], says: str) -> None:
    """Exit code 2."""
    write_marconi100(tmp_path / "m100")
    write_study(tmp_path / "empty", [point(1, 1)])
    (tmp_path / "config").mkdir()
    result = run("proposal", *arguments)
    assert (result.exit_code, says in result.stderr) == (2, True)


@pytest.mark.dear
def test_a_figure_that_raises_costs_itself(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is written without it, the other one is there; exit code 3."""

    def wrong(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    study = write_study(tmp_path / "s", [point(1, 1), point(1, 2), point(1, 4)])
    for each in (point(1, 1), point(1, 2), point(1, 4)):
        write_runs(study, each, [MS])
    monkeypatch.setattr("hpcddp.analysis.figures.scaling.efficiency_figure", wrong)
    result = run("proposal", "s", "-o", "out")
    assert (result.exit_code, "efficiency.png" in (tmp_path / "out/proposal.md").read_text()) == (3, False)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"proposal.md", "scaling.png", "scaling.svg", "scaling.pdf"}
    assert "failed: the figure `efficiency`: RuntimeError: planted (" in " ".join(result.stderr.split())
