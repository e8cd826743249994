"""Where the energy of a whole node is read: files as Cray's and NVIDIA's nodes have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.records import NODE_COLUMNS
from hpcddp.worker.main import run
from hpcddp.worker.telemetry import reader_process
from hpcddp.worker.telemetry.node import NodeReader
from hpcddp.worker.telemetry.node_energy import node_energy
from tests.worker import forked, given
from tests.worker.test_telemetry_readings import write


def cray(sys: Path, joules: str = "43210 J 1632233459 us", watts: str = "812 W 1632233459 us") -> None:
    """Counters of a node with an accelerator, whose energy is in that of the node."""
    files = {"energy": joules, "power": watts, "accel0_energy": "40000 J 1 us", "freshness": "9", "version": "2"}
    for name, text in files.items():
        write(sys / "cray" / "pm_counters" / name, f"{text}\n")


def meter(sys: Path, number: int, name: str, microwatts: int) -> None:
    """A power meter of ACPI as Linux shows it."""
    device = sys / "class" / "hwmon" / f"hwmon{number}" / "device"
    write(device / "power1_oem_info", f"{name}\n")
    write(device / "power1_average", f"{microwatts}\n")


def test_crays_counters_are_the_nodes(tmp_path: Path) -> None:
    """Joules and watts of the node, in thousandths; the accelerators are in them already."""
    cray(tmp_path)
    found = node_energy(tmp_path)
    assert found
    assert (found.source, found.read()) == ("pm_counters", (43_210_000, 812_000))


def test_modules_are_summed(tmp_path: Path) -> None:
    """Of each socket the module; its Grace, CPU and SysIO meters are in it, and a meter of something else is none."""
    for number, (name, watts) in enumerate(
        [
            ("Module Power Socket 0", 600),
            ("Grace Power Socket 0", 200),
            ("Module Power Socket 1", 500),
            ("CPU Power Socket 1", 90),
        ]
    ):
        meter(tmp_path, number, name, watts * 10**6)
    write(tmp_path / "class" / "hwmon" / "hwmon9" / "name", "nvme\n")
    found = node_energy(tmp_path)
    assert found
    assert (found.source, found.read()) == ("module power", (None, 1_100_000))


def test_counters_come_before_meters(tmp_path: Path) -> None:
    """Nodes of Alps have both: the counters are of the whole node."""
    meter(tmp_path, 1, "Module Power Socket 0", 6 * 10**8)
    cray(tmp_path)
    assert getattr(node_energy(tmp_path), "source", None) == "pm_counters"


@pytest.mark.parametrize("joules", ["", "43210", "43210 kJ 1 us", "many J 1 us"])
def test_what_is_no_joules_is_no_source(tmp_path: Path, joules: str) -> None:
    """Another unit, or no number, is never taken for one."""
    cray(tmp_path, joules)
    assert node_energy(tmp_path) is None


def test_a_node_without_a_source_has_empty_cells(tmp_path: Path) -> None:
    """As any other reading that is not there; a source that goes away leaves them empty, too."""
    assert node_energy(tmp_path) is None
    cray(tmp_path)
    reader = NodeReader(lambda: None, node_energy(tmp_path), proc=tmp_path / "proc", sys=tmp_path)
    assert dict(zip(NODE_COLUMNS, reader.row(), strict=True))["energy_mj"] == 43_210_000
    (tmp_path / "cray" / "pm_counters" / "power").unlink()
    row = dict(zip(NODE_COLUMNS, reader.row(), strict=True))
    assert (row["energy_mj"], row["power_mw"]) == (None, None)


@pytest.mark.dear
def test_a_run_on_such_a_node_records_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: the reader's own process finds the source, says so in nodes/HOST.json, and end.json has it by its name."""
    cray(tmp_path / "sys")
    path, rest = reader_process.PROGRAM.split("; from ", 1)
    elsewhere = f"node_energy.node_energy.__defaults__ = (pathlib.Path({str(tmp_path / 'sys')!r}),)"
    finds = f"import pathlib; from hpcddp.worker.telemetry import node_energy; {elsewhere}"
    monkeypatch.setattr(reader_process, "PROGRAM", f"{path}; {finds}; from {rest}")
    spec = given.job(tmp_path, given.point(1, steps=1000, measure={"telemetry_hz": 10.0}))
    (outcome,) = forked.ranks(tmp_path / "output", 1, run, spec_to_dict(spec))
    assert outcome.code == 0, outcome.output
    attempt = spec.attempt_dir("7", 0)
    (node,) = json.loads((attempt / "end.json").read_text())["telemetry"]["nodes"]
    assert (node["energy_from"], node["power_w_mean"], node["power_w_peak"], node["energy_j"]) == ("pm_counters", 812, 812, 0)
    about = json.loads((attempt / "nodes" / f"{node['host']}.json").read_text())["telemetry"]
    assert about["node_energy"] == "pm_counters"
