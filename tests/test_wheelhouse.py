"""`make wheelhouse`: wheels from which hpcddp is installed where there is no internet."""

from __future__ import annotations

import base64
import configparser
import hashlib
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.fresh_install import CHECKOUT, copy_checkout, run

pytestmark = pytest.mark.dear

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def requirements() -> dict[str, str]:
    """Name of each package that hpcddp needs -> the least version that will do."""
    config = configparser.ConfigParser()
    config.read(CHECKOUT / "setup.cfg", encoding="utf-8")
    lines = config["options"]["install_requires"].split()
    return {re.split(r"[<>=]", line)[0]: re.split(r"[<>=]+", line)[1].rstrip(",") for line in lines}


def wheel(folder: Path, name: str, version: str, tag: str) -> None:
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


def digest(text: str) -> str:
    """As RECORD has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in place of an index: each package for any Python, but numpy for one Python and platform each."""
    folder = tmp_path_factory.mktemp("index")
    for name, version in requirements().items():
        if name != "numpy":
            wheel(folder, name, version, "py3-none-any")
    for python in (f"cp{PYTHON.replace('.', '')}", "cp314"):
        for platform in ("manylinux_2_28_x86_64", "manylinux_2_17_aarch64", "manylinux_2_38_x86_64"):
            wheel(folder, "numpy", "2.0.0", f"{python}-{python}-{platform}")
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
    """For the Python and platform that were named; the checksums are those of the files."""
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
    """Whatever machine the target runs on."""
    checkout = copy_checkout(tmp_path / "checkout")
    folder = wheelhouse(checkout, index, "FOR_PYTHON=3.14", "FOR_PLATFORM=aarch64-manylinux_2_28")
    assert [file.name for file in folder.glob("numpy-*")] == ["numpy-2.0.0-cp314-cp314-manylinux_2_17_aarch64.whl"]
    command = ["make", "wheelhouse", f"VENV={sys.prefix}", "FOR_PYTHON=3.14", "FOR_PLATFORM=ppc64le-manylinux_2_28"]
    done = subprocess.run(command, cwd=checkout, env=offline(index), capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert not (checkout / "wheelhouse" / "SHA256SUMS").exists()
