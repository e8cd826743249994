"""The pages say what the code says, and lead where they say; the scripts of docs/probe.md run as they are written."""

from __future__ import annotations

import configparser
import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import click
import pytest

from hpcddp.analysis.report.api import analyze
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.context import FASTER, INPUT_SHARE
from hpcddp.analysis.verdicts.gates import DAMAGED_SHARE
from hpcddp.analysis.verdicts.input import BUSY, CORES_WAITED, MOSTLY, LoaderLimit
from hpcddp.analysis.verdicts.verdicts import ALL
from hpcddp.cli import main
from hpcddp.cluster.json_schema import field_docs
from hpcddp.core.attempt_records import LoaderTimes, TrainingEnd
from hpcddp.core.catalog import DATASETS, IMAGENET
from hpcddp.core.point import Data
from hpcddp.core.run_root import single_study
from hpcddp.data.bigmnist.shards import MANIFEST as BIGMNIST
from hpcddp.data.loading import USUAL
from hpcddp.data.pictures.decoders import DECODERS, EIGHTHS, MOST_PIXELS
from hpcddp.data.pictures.image_folder import FOLDERS
from hpcddp.data.pictures.tar_shards import TAR_MANIFEST, index_file, member_name
from hpcddp.data.small_sets import DIGITS_FILES
from hpcddp.data.writing.pack import SAMPLES_PER_SHARD
from hpcddp.probe.measurement import measure
from tests.docs.pages import PAGES, ROOT, WRITTEN, anchors, links, sweep_sections
from tests.test_source import BANNED, sources


@pytest.mark.parametrize("name", PAGES)
def test_a_page_made_from_the_code_is_as_the_code_is(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name]()


def test_every_key_of_a_sweep_has_a_sentence() -> None:
    missing = {
        f"{path}.{field.name}"
        for path, cls in sweep_sections()
        for field in dataclasses.fields(cls)
        if field.name not in field_docs(cls)
    }
    assert missing == set()


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for file, anchor in links(text):
        target = page.parent / file if file else page
        assert target.exists(), file
        assert not anchor or target.suffix != ".md" or anchor in anchors(target.read_text(encoding="utf-8")), f"{file}#{anchor}"


SAYING = [*WRITTEN, *sources("hpcddp", "analysis")]
"""What names commands: pages, and messages and docstrings of the code."""


def unknown_words(typed: str) -> list[str]:
    """Of what is typed after `hpcddp`, commands and options that are not there."""
    command: click.Command = main
    words = typed.partition(" -- ")[0].split()
    while isinstance(command, click.Group) and words and re.fullmatch("[a-z][a-z0-9]*", words[0]):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return words[:1]
        command, words = found, words[1:]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "--version"}
    group = isinstance(command, click.Group)  # `hpcddp data`: what its commands have
    return [] if group else [word for word in re.findall(r"(?<!\S)--[a-z][a-z-]+", " ".join(words)) if word not in known]


def test_commands_that_are_named_exist() -> None:
    texts = [file.read_text(encoding="utf-8") for file in SAYING]
    named = {typed for text in texts for typed in re.findall(r"`hpcddp ([^`]+)`", " ".join(text.split()))}
    named |= {typed for text in texts[: len(WRITTEN)] for typed in re.findall(r"^    hpcddp ([^|#\n]*)", text, re.MULTILINE)}
    assert {typed for typed in named if unknown_words(typed)} == set()
    assert len(named) > 100


def test_a_command_that_is_gone_is_found() -> None:
    assert unknown_words("propose STUDY --nodes 4") == ["propose"]
    assert unknown_words("data fetch cifar10 --rot X") == ["--rot"]
    assert unknown_words("submit --nodes 2 -- python train.py --depth 3") == []


def test_keys_and_files_that_pages_name_exist() -> None:
    keys = {f"{path}.{field.name}" for path, cls in sweep_sections() for field in dataclasses.fields(cls)}
    texts = [page.read_text(encoding="utf-8") for page in WRITTEN if page.name not in PAGES]
    named = {key for text in texts for key in re.findall(r"`((?:workload|measure|layout)\.[a-z_.]*[a-z])", text)}
    assert {key for key in named - keys if not key.startswith("workload.args")} == set()
    files = {file for text in texts for file in re.findall(r"`((?:hpcddp|analysis|templates|clusters|tests)/[\w./-]+)`", text)}
    assert {file for file in files if not (ROOT / file).exists()} == set()


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {ROOT / file for file, _ in links((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert set(WRITTEN) - {ROOT / "README.md"} <= linked


def test_every_mark_of_tests_is_explained() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    marks = re.findall(r"^(\w+):", config["tool:pytest"]["markers"], re.MULTILINE)
    assert re.findall(r"^\| `(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE) == marks


@pytest.mark.parametrize(("page", "words"), [("README.md", 600), ("docs/usage.md", 1200), ("docs/architecture.md", 1500)])
def test_what_is_read_first_is_short(page: str, words: int) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").split()) <= words


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text below a heading."""
    return ARCHITECTURE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """Cells of the section's tables, without their heads."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def files(text: str) -> list[str]:
    """Paths in backticks."""
    return re.findall(r"`((?:hpcddp|analysis|templates|clusters|tests)/[\w./-]*)`", text)


@pytest.mark.parametrize(("contract", "heading"), [("floors", "`hpcddp/`"), ("analysis", "`analysis/`")])
def test_layers_are_those_of_lint(contract: str, heading: str) -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    layers = config[f"importlinter:contract:{contract}"]["layers"].split("\n")
    of_lint = [sorted(layer.split(" | ")) for layer in layers if layer and layer not in ("__main__", "cli")]
    table = section("Layers").partition(f"{heading}, from the top:")[2].partition("\n\n`")[0]
    floors = [re.findall(r"`(\w+)`", line.split(" | ")[0]) for line in table.splitlines() if line.startswith("| `")]
    assert [sorted(floor) for floor in floors if "cli" not in floor] == of_lint


def test_where_keys_of_a_sweep_live() -> None:
    (where,) = [row[1] for row in rows("Where something new goes") if row[0] == "a key of a sweep"]
    assert {f"{cls.__module__.replace('.', '/')}.py" for _, cls in sweep_sections()} <= set(files(where))


def test_classes_that_it_names_exist() -> None:
    named = {name for row in rows("Terms") for name in re.findall(r"`([A-Z]\w+)`", row[1])}
    code = "\n".join(file.read_text(encoding="utf-8") for file in sources("hpcddp", "analysis"))
    assert {name for name in named if not re.search(rf"^class {name}\b", code, re.MULTILINE)} == set()
    assert len(named) > 5


def test_words_have_one_meaning_each() -> None:
    words = [row[0] for row in rows("Terms")[1:]]
    assert len(words) == len(set(words))
    assert not BANNED & set(words)


DATA = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


def test_every_data_set_has_a_row() -> None:
    rows = re.findall(r"^\| (`.*?) \|", DATA, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z0-9-]+)(?:\.\.\.)?`", row)}
    assert named == {name if not name.startswith("synthetic-") else "synthetic-" for name in DATASETS}


def test_numbers_of_the_page_on_data_are_those_of_the_code() -> None:
    tar = Path("train-00000.tar")
    shards = -(-IMAGENET.train_samples // SAMPLES_PER_SHARD) + -(-IMAGENET.eval_samples // SAMPLES_PER_SHARD)
    for said in (
        f"{MOST_PIXELS:,}",
        f"{shards} tar files of {SAMPLES_PER_SHARD:,} images",
        f"`{member_name(0)}`",
        f"`{index_file(tar).name}`",
        f"`{TAR_MANIFEST}`",
        BIGMNIST,
        *DIGITS_FILES.values(),
        *(f"ROOT/{folder}/CLASS" for folder in FOLDERS.values()),
    ):
        assert said in " ".join(DATA.split()), said
    assert (DAMAGED_SHARE, EIGHTHS) == (1e-3, (1, 2, 4))  # one in a thousand; an eighth, a quarter, half


def test_values_verdicts_and_records_that_the_page_on_data_names_exist() -> None:
    assert set(DECODERS) | {"auto"} == set(get_args(get_type_hints(Data)["decoder"]))
    assert all(f"`{name}`" in DATA for name in ("auto", *DECODERS))
    assert set(re.findall(r"the verdict `([^`]+)`", DATA)) <= set(ALL)
    assert {"loader", "damaged"} <= {field.name for field in dataclasses.fields(TrainingEnd)}
    assert "samples_per_s" in {field.name for field in dataclasses.fields(LoaderTimes)}


def test_limits_of_loaders_are_those_that_are_named() -> None:
    rows = re.findall(r"^\| ([a-z -]+) \| .* \| .* \|$", DATA.partition("## What limits where")[2], re.MULTILINE)
    assert set(rows) - {"limit"} == set(get_args(LoaderLimit))
    assert (INPUT_SHARE, BUSY, CORES_WAITED, MOSTLY) == (0.1, 0.8, 0.2, 0.5)  # a tenth, 80 %, a fifth, half
    assert (FASTER, USUAL) == (0.1, 2)  # 10 %; two batches


PROBE = (ROOT / "docs" / "probe.md").read_text(encoding="utf-8")

FEWER = "warmup_steps=3, steps=12"


def scripts() -> dict[str, str]:
    """The page's, by the heading that they stand under; with fewer steps."""
    sections = re.split(r"^##+ ", PROBE, flags=re.MULTILINE)
    found = {section.splitlines()[0]: re.findall(r"```python\n(.*?)```", section, re.DOTALL) for section in sections}
    return {name: _shorter(text) for name, texts in found.items() for text in texts}


def _shorter(script: str) -> str:
    given = re.sub(r"warmup_steps=\d+, steps=\d+", FEWER, script)
    return given if FEWER in given else re.sub(r"(samples_per_step=[^)]*)\)", rf"\1, {FEWER})", given)


def output_of(command: str, folder: Path) -> str:
    """What it prints, run there."""
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command.split(), cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
def test_the_script_and_its_commands(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(scripts()["# Measuring a training loop of your own"])
    commands = re.findall(r"^    ((?:python|torchrun|hpcddp) [^|\n]*)$", PROBE, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["python", "torchrun", "hpcddp"]
    assert "1 x 2" in [output_of(command, tmp_path) for command in commands][-1]
    found = load_study(single_study(tmp_path / "jobs"))
    assert [run.state for run in found.runs] == ["counts", "counts"]


@pytest.mark.soak
@pytest.mark.parametrize("framework", ["Lightning", "transformers", "Accelerate"])
def test_frameworks(tmp_path: Path, framework: str, undrawn: None) -> None:
    (tmp_path / "train.py").write_text(scripts()[framework])
    output_of("torchrun --nproc-per-node 2 train.py", tmp_path)
    (measured,) = load_study(single_study(tmp_path / "jobs")).runs
    assert (measured.state, measured.reason, measured.steady_steps) == ("counts", None, 12)
    assert min((measured.part_ns or {})[part] or 0 for part in ("data_wait", "forward", "backward", "optimizer")) > 0
    assert measured.exchange is not None
    (report,) = analyze(tmp_path / "jobs")
    assert "1 x 2" in report.text


def test_every_argument_is_explained() -> None:
    named = re.findall(r"`(\w+)`", PROBE)
    assert set(measure.__annotations__) - {"model", "optimizer", "return"} <= set(named)
