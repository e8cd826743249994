"""The package as users get it: nothing missing, no runs inside, and it works away from the checkout; and from a wheelhouse."""

from __future__ import annotations

import base64
import configparser
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from hpcddp import __version__
from tests.analysis.synthetic import point, write_runs, write_study
from tests.machine import CHECKOUT, build, copy_checkout, install, run

pytestmark = pytest.mark.dear

RUNS = ("jobs/local-mnist", "jobs/x")


@pytest.fixture(scope="module")
def used_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout with runs in jobs/, one holding a snapshot of hpcddp, one a package of its own."""
    copy = copy_checkout(tmp_path_factory.mktemp("used") / "checkout")
    for name in ("sweep.yaml", "__init__.py", "n01-g1-b64-0123456789ab/point.json", ".code/0123456789abcdef/hpcddp/__init__.py"):
        for runs in RUNS:
            file = copy / runs / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    return copy


@pytest.fixture(scope="module")
def wheel(used_checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", used_checkout, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hpcddp command of an environment that has the wheel."""
    return install(wheel, tmp_path_factory.mktemp("installed") / "venv") / "hpcddp"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, which is also the home of a user without settings."""
    for name in ("HPCDDP_CLUSTER", "HPCDDP_RUNS", "PYTHONPATH", "SBATCH_ACCOUNT", "SBATCH_RESERVATION", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def package_files(checkout: Path) -> set[str]:
    """What the package is made of: modules, profiles, templates and sweeps at the top of linked folders; analysis is deeper."""
    links = [path for path in (checkout / "hpcddp").iterdir() if path.is_symlink()]
    files = [path for path in (checkout / "hpcddp").rglob("*.py") if not set(links) & set(path.parents)]
    patterns = ("*.py", "*.json", "*.yaml", "*.j2", "*.css", "*.csv", "*.js")
    for link in links:
        found = link.rglob if link.name == "analysis" else link.glob
        files += [path for pattern in patterns for path in found(pattern)]
    return {path.relative_to(checkout).as_posix() for path in files}


def test_wheel_of_a_used_checkout_holds_the_package_and_no_runs(used_checkout: Path, wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == package_files(used_checkout)


def test_sdist_holds_files_in_place_of_links_and_builds_the_same_wheel(used_checkout: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", used_checkout, tmp_path / "sdist")) as sdist:
        assert [member.name for member in sdist if member.issym() or member.islnk()] == []
        sdist.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    of_sdist = build("wheel", source, tmp_path / "wheel")
    assert contents(of_sdist) == contents(wheel)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_installed_command_is_not_the_checkout(installed: Path, elsewhere: Path) -> None:
    where = run(installed.parent / "python", "-c", "import hpcddp.analysis; print(hpcddp.analysis.__file__)")
    assert Path(where.strip()).is_relative_to(installed.parent.parent)


def test_submitit_finds_the_executor(installed: Path, elsewhere: Path) -> None:
    """By the entry point of the wheel; in a job, where the login side need not be, it finds its own class."""
    script = "from submitit.core.plugins import get_executors; print(get_executors()['hpcddp'].__module__)"
    assert run(installed.parent / "python", "-c", script) == "hpcddp.submit.executor\n"
    in_job = script.replace("['hpcddp']", "['slurm']")
    env = {**os.environ, "SUBMITIT_EXECUTOR": "slurm"}
    assert run(installed.parent / "python", "-W", "error", "-c", in_job, env=env) == "submitit.slurm.slurm\n"


def test_renders_the_checkouts_bytes(installed: Path, elsewhere: Path) -> None:
    arguments = ("render", "--cluster", "rcc", "--nodes", "4")
    of_checkout = run(sys.executable, "-m", "hpcddp", *arguments, env={**os.environ, "PYTHONPATH": str(CHECKOUT)})
    assert of_checkout.startswith("#!")
    assert run(installed, *arguments) == of_checkout


def test_ones_own_profile_extends_a_shipped_one(installed: Path, elsewhere: Path) -> None:
    """By name from the settings folder, a template beside it, and by file; advice names the file."""
    own = elsewhere / ".config" / "hpcddp" / "clusters"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("schema: 1\nname: mine\nextends: rcc\ntemplate: mine.sh.j2\nenv: {A_SWITCH: '1'}\n")
    (own / "mine.sh.j2").write_text('{% extends "base.sh.j2" %}\n{% block teardown %}\necho bye\n{% endblock %}\n')
    (elsewhere / "here.yaml").write_text("schema: 1\nname: here\nextends: mine\nenv: {A_SWITCH: '2'}\n")
    assert "Yours, in ~/.config/hpcddp/clusters: mine (extends rcc)" in run(installed, "clusters", "list")
    for cluster, value in (("mine", 1), ("./here.yaml", 2)):
        script = run(installed, "render", "--cluster", cluster, "--nodes", "4")
        assert f"\nexport A_SWITCH={value}\n" in script
        assert "\necho bye\n" in script
    for cluster, file in (("mine", "~/.config/hpcddp/clusters/mine.yaml"), ("./here.yaml", "here.yaml")):
        refused = subprocess.run(
            [installed, "render", "--cluster", cluster, "--nodes", "40"], capture_output=True, text=True, check=False
        )
        assert (refused.returncode, f"`hpcddp clusters show {file}`" in refused.stderr) == (2, True)


def test_shipped_sweep_passes_a_dry_run(installed: Path, elsewhere: Path) -> None:
    """init, then submit --dry-run: the sweep that ships is found and valid, no Slurm is needed, nothing is submitted."""
    run(installed, "init", "rcc-bigmnist")
    no_slurm = {**os.environ, "PATH": str(installed.parent)}
    shown = run(installed, "submit", "--dry-run", "--set", "account=abc01", "rcc-bigmnist.yaml", env=no_slurm)
    assert "nodes 1, 2, 4 x 4 GPUs" in shown
    assert [path.name for path in elsewhere.iterdir() if path.is_dir()] == []


def test_analyzes(installed: Path, elsewhere: Path) -> None:
    points = [point(nodes, 1) for nodes in (1, 2, 4)]
    study = write_study(elsewhere / "runs" / "told", points)
    for number, each in enumerate(points):
        write_runs(study, each, [100_000_000 + number * 10_000_000])
    assert "told" in run(installed, "analyze", "runs")
    report = elsewhere / "runs" / "told" / "report"
    assert (report / "scaling.csv").is_file()
    assert list(report.glob("figures/*.svg"))


def test_one_version() -> None:
    citation, changes = ((CHECKOUT / name).read_text(encoding="utf-8") for name in ("CITATION.cff", "CHANGELOG.md"))
    assert re.findall(r"^version: (\S+)", citation, re.MULTILINE) == [__version__]
    assert re.findall(r"^## (\S+)", changes, re.MULTILINE)[0] == __version__


PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def requirements() -> dict[str, str]:
    """Name of each package that hpcddp needs -> the least version that will do."""
    config = configparser.ConfigParser()
    config.read(CHECKOUT / "setup.cfg", encoding="utf-8")
    lines = config["options"]["install_requires"].split()
    return {re.split(r"[<>=]", line)[0]: re.split(r"[<>=]+", line)[1].rstrip(",") for line in lines}


def empty_wheel(folder: Path, name: str, version: str, tag: str) -> None:
    """A wheel with nothing in it but its description."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    digests = {
        path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        for path, text in files.items()
    }
    rows = [f"{path},sha256={digest},{len(files[path])}" for path, digest in digests.items()]
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as archive:
        for path, text in {**files, f"{info}/RECORD": "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"}.items():
            archive.writestr(path, text)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in place of an index: each package for any Python, but numpy for one Python and platform each."""
    folder = tmp_path_factory.mktemp("index")
    for name, version in requirements().items():
        if name != "numpy":
            empty_wheel(folder, name, version, "py3-none-any")
    for python in (f"cp{PYTHON.replace('.', '')}", "cp314"):
        for platform in ("manylinux_2_28_x86_64", "manylinux_2_17_aarch64", "manylinux_2_38_x86_64"):
            empty_wheel(folder, "numpy", "2.0.0", f"{python}-{python}-{platform}")
    return folder


def offline(index: Path) -> dict[str, str]:
    """Variables with which pip and uv find packages in that folder only."""
    config = index / "uv.toml"
    config.write_text(f'[pip]\nno-index = true\nfind-links = ["{index}"]\nno-build-isolation = true\n')
    pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_NO_BUILD_ISOLATION": "0"}
    return {**os.environ, **pip, "UV_CONFIG_FILE": str(config)}


def wheelhouse(checkout: Path, index: Path, *variables: str) -> Path:
    """The folder that the target makes of a checkout."""
    run("make", "wheelhouse", f"VENV={sys.prefix}", *variables, cwd=checkout, env=offline(index))
    return checkout / "wheelhouse"


def test_hpcddp_is_installed_from_it_and_nothing_else(tmp_path: Path, index: Path) -> None:
    folder = wheelhouse(copy_checkout(tmp_path / "checkout"), index, f"FOR_PYTHON={PYTHON}", "FOR_PLATFORM=x86_64-manylinux_2_31")
    names = {file.name.split("-")[0] for file in folder.glob("*.whl")}
    assert names == {"hpcddp", *requirements()}
    assert [file.name for file in folder.glob("numpy-*")] == [
        f"numpy-2.0.0-cp{PYTHON.replace('.', '')}-cp{PYTHON.replace('.', '')}-manylinux_2_28_x86_64.whl"
    ]
    assert run("sha256sum", "--check", "SHA256SUMS", cwd=folder).count(": OK") == len(names)
    venv.create(tmp_path / "site", with_pip=False, symlinks=True)
    python = tmp_path / "site" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet", "--no-index")
    run(*pip, "--find-links", folder, "hpcddp", env={**os.environ, "PIP_CONFIG_FILE": os.devnull})
    assert run(python, "-c", "import hpcddp; print(hpcddp.__version__)", cwd=tmp_path).strip()


def test_another_platform_gets_its_own_wheels_and_a_lack_is_named(tmp_path: Path, index: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    folder = wheelhouse(checkout, index, "FOR_PYTHON=3.14", "FOR_PLATFORM=aarch64-manylinux_2_28")
    assert [file.name for file in folder.glob("numpy-*")] == ["numpy-2.0.0-cp314-cp314-manylinux_2_17_aarch64.whl"]
    command = ["make", "wheelhouse", f"VENV={sys.prefix}", "FOR_PYTHON=3.14", "FOR_PLATFORM=ppc64le-manylinux_2_28"]
    done = subprocess.run(command, cwd=checkout, env=offline(index), capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert not (checkout / "wheelhouse" / "SHA256SUMS").exists()
