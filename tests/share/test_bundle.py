"""A bundle holds what analysis reads, no more, always in the same bytes; one from elsewhere is opened with suspicion."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.report.terminal import findings_plain
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.errors import UsageError
from hpcddp.core.point import point_from_dict
from hpcddp.core.preflight import PreflightRecord, slow_readings
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.share.bundle import STRANGE, PackedBundle, write_bundle
from hpcddp.share.unbundle import kind_of, opened_study, why_left_out
from hpcddp.study.study_status import preflights_of
from tests.analysis.study.test_accuracy import training, trainings
from tests.analysis.study.test_trained import measured, script
from tests.analysis.synthetic import point, predicted, write_prediction, write_study
from tests.fake_node import clean, slowed
from tests.given_study import ALICE, SECRETS, write_given

LABEL = point(1, 1).label


def members(bundle: Path) -> dict[str, bytes]:
    """Path -> bytes of its files, without the study's folder."""
    with tarfile.open(bundle) as archive:
        found = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        return {name.partition("/")[2]: source.read() for name, source in found.items() if source is not None}


def numbers(study: Study) -> dict[str, Any]:
    """What a report says, without its figures."""
    plain: dict[str, Any] = findings_plain(find(load_study(study)), [])
    return plain


def hidden(study: Study, **options: Any) -> tuple[PackedBundle, dict[str, bytes]]:
    file = study.folder.parent / "b.tar.gz"
    return write_bundle(study, file, pseudonymise=True, **options), members(file)


@contextlib.contextmanager
def edited(file: Path) -> Iterator[Any]:
    """The JSON in it, which is written back."""
    plain = json.loads(file.read_text())
    yield plain
    write_json(file, plain)


def of_first(study: Study, name: str) -> Path:
    return study.attempt_dir(LABEL, 1, "101", 0) / name


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return write_given(tmp_path / "scaling")


def archive_of(file: Path, *entries: tarfile.TarInfo | str) -> Path:
    """A gzipped tar of these entries; a name stands for an empty file."""
    with tarfile.open(file, "w:gz") as archive:
        for entry in entries:
            member = tarfile.TarInfo(entry) if isinstance(entry, str) else entry
            archive.addfile(member, io.BytesIO(b"\0" * member.size))
    return file


def member(name: str, **changes: object) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    for key, value in changes.items():
        setattr(found, key, value)
    return found


def of_scripts(folder: Path) -> Study:
    study = write_study(folder, [script(1), script(2)])
    for gpus in (1, 2):
        measured(study, script(gpus), 8)
    return study


def of_epochs(folder: Path) -> Study:
    return trainings(folder, {training(1): [((50, 90), 10.0)] * 2, training(2): [((60, 91), 6.0)] * 2})


@pytest.mark.dear
@pytest.mark.parametrize("pseudonymise", [False, True])
@pytest.mark.parametrize("given", [write_given, of_scripts, of_epochs])
def test_a_bundle_analyzes_the_same(tmp_path: Path, given: Callable[[Path], Study], pseudonymise: bool) -> None:
    """A script's points have no batch in their names; without its epochs.csv a training would be rejected."""
    study = given(tmp_path / "scaling")
    before = numbers(study)
    packed = write_bundle(study, tmp_path / "b.tar.gz", pseudonymise=pseudonymise)
    with opened_study(tmp_path / "b.tar.gz") as folder:
        after = numbers(Study(folder))
    same = ("points", "epochs", "to_accuracy") if pseudonymise else tuple(before)
    assert {of: before[of] for of in same} == {of: after[of] for of in same}
    assert packed.strange == (("notes.txt",) if given is write_given else ())


@pytest.mark.parametrize("pseudonymise", [False, True])
def test_what_was_predicted_is_in_the_bundle(study: Study, tmp_path: Path, pseudonymise: bool) -> None:
    expected = predicted(point(1, 1), 100.0, anchor=LABEL)
    write_prediction(study, expected)
    write_bundle(study, tmp_path / "b.tar.gz", pseudonymise=pseudonymise)
    with opened_study(tmp_path / "b.tar.gz") as folder:
        assert load_study(Study(folder)).predicted == {LABEL: expected}


def test_what_is_left_out_is_counted(study: Study, tmp_path: Path) -> None:
    for name in ("report/index.html", ".analysis/x", ".jobs/lock/1"):
        (study.folder / name).parent.mkdir(exist_ok=True)
        (study.folder / name).touch()
    packed = write_bundle(study, tmp_path / "b.tar.gz")
    assert {reason.partition(":")[0] for reason in packed.left_out} == {
        "the snapshot of the code that ran",
        "the report",
        "locks and files of this machine's queue",
        "submitit's pickles",
        "links",
        "files that hpcddp did not write",
    }
    assert packed.files == {"records": 18, "nodes": 12, "scripts": 2, "logs": 1}
    names = members(tmp_path / "b.tar.gz")
    assert not [name for name in names if name.endswith(".pkl") or name.startswith((".code", "report")) or "notes" in name]
    assert json.loads(names["bundle.json"])["left_out"] == packed.left_out


def test_files_that_hpcddp_did_not_write_are_named(study: Study, tmp_path: Path) -> None:
    for name in ("zz", "plan.md", "b.ipynb", "a.ipynb"):
        (study.folder / name).touch()
    assert write_bundle(study, tmp_path / "b.tar.gz").strange == ("a.ipynb", "b.ipynb", "notes.txt")


def test_equal_studies_are_equal_bytes(tmp_path: Path) -> None:
    for place in ("a", "b"):
        study = write_given(tmp_path / place / "scaling")
        (study.study_file).chmod(0o600 if place == "a" else 0o644)
        write_bundle(study, tmp_path / f"{place}.tar.gz")
        write_bundle(study, tmp_path / f"{place}.hidden.tar.gz", pseudonymise=True)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    assert (tmp_path / "a.hidden.tar.gz").read_bytes() == (tmp_path / "b.hidden.tar.gz").read_bytes()
    assert (tmp_path / "a.tar.gz").read_bytes()[3:8] == bytes(5)  # gzip's header (RFC 1952): no name, no time
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        assert {(each.mtime, each.uid, each.gid, each.uname) for each in archive} == {(0, 0, 0, "")}


def test_an_empty_attempt_stays_an_attempt(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s", [point(1, 1)])
    study.attempt_dir(LABEL, 1, "7", 0).mkdir(parents=True)
    write_bundle(study, tmp_path / "b.tar.gz")
    with opened_study(tmp_path / "b.tar.gz") as folder:
        assert numbers(Study(folder))["missing"][0]["reason"] == "attempt 7.0 has not ended"


def test_nobody_is_named_in_a_pseudonymised_bundle(study: Study) -> None:
    packed, found = hidden(study)
    everything = "\n".join([*found, *(data.decode() for data in found.values())])
    assert [secret for secret in SECRETS if secret in everything] == []
    assert (packed.remaining, "logs: they may contain any name" in packed.left_out) == ({}, True)


def test_the_same_name_is_the_same_word_everywhere(study: Study, tmp_path: Path) -> None:
    write_bundle(study, tmp_path / "plain.tar.gz")
    (_, found), before = hidden(study), members(tmp_path / "plain.tar.gz")
    attempt = f"{point(2, 1).label}/r2/102.0"
    launch, end = json.loads(found[f"{attempt}/launch.json"]), json.loads(found[f"{attempt}/end.json"])
    assert launch["hosts"] == ["node01", "node02"]
    slurm = {"SLURM_JOB_USER": "user", "SLURM_JOB_ACCOUNT": "account", "SLURM_JOB_UID": "0", "SLURM_JOB_NODELIST": "nodes"}
    others = {"MASTER_ADDR": "node01", "VIRTUAL_ENV": "/path", "LOADEDMODULES": "cuda/12.1:nccl/2.18"}
    assert launch["environment"] == slurm | others
    assert (launch["data"]["root"], launch["versions"], launch["point"]) == ("/path", {"torch": "2.7.1"}, point(2, 1).id)
    assert end["reason"] == "node02 could not reach 0.0.0.0: see /path"
    assert [rank["host"] for rank in end["ranks"]] == ["node02", "node02"]
    assert {f"{attempt}/nodes/node02.json", f"{attempt}/nodes/node02.node.csv"} <= set(found)
    for name in (f"{attempt}/ranks/00000.steps.csv", f"{LABEL}/point.json"):
        assert found[name] == before[name]
    (script,) = (data.decode() for name, data in found.items() if name.endswith("/job.sbatch"))
    assert all(line in script for line in ("--account=account", "--exclude=nodes", "module load /path"))


def test_a_name_that_is_a_word_of_the_point_is_not_replaced_in_silence(study: Study) -> None:
    """A user called as the cluster: another point it would be, so the name stays, and is told."""
    with edited(study.point_file(LABEL)) as plain:
        plain["point"]["cluster"] = "alice"
        plain["id"] = point_from_dict(plain["point"]).id
    with pytest.raises(UsageError, match=rf"{LABEL}/point.json has alice\n.*wrote no bundle.* --yes"):
        hidden(study)
    assert list(study.folder.parent.iterdir()) == [study.folder]


def test_names_that_cannot_be_replaced_are_told(study: Study) -> None:
    with edited(study.study_file) as recorded:
        recorded["name"] = "alice-scaling"
    with edited(of_first(study, "end.json")) as end:
        end["gates"][0] |= {"name": "see /home/bob/x", "evidence": "hera[1-4] was down, says https://wiki.hera.net/x"}
    packed, _ = hidden(study, yes=True)
    assert packed.remaining == {"study.json": ("alice",), f"{LABEL}/r1/101.0/end.json": ("/home/bob/x", "bob", "hera[1-4]")}


def test_torn_records_stay_torn(study: Study) -> None:
    of_first(study, "launch.json").write_text(f'{{"hosts": ["gpu-a07.example.edu"], "home": "{ALICE}/x", "a')
    _, found = hidden(study)
    assert found[f"{LABEL}/r1/101.0/launch.json"].startswith(b'{"hosts": ["node01"], "home": "/path')


def test_a_file_is_replaced_only_when_asked(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s", [point(1, 1)])
    (tmp_path / "b.tar.gz").write_text("mine")
    with pytest.raises(UsageError, match=r"already exists.*--force"):
        write_bundle(study, tmp_path / "b.tar.gz")
    assert (tmp_path / "b.tar.gz").read_text() == "mine"
    write_bundle(study, tmp_path / "b.tar.gz", force=True)
    assert "study.json" in members(tmp_path / "b.tar.gz")


@pytest.mark.parametrize("first", [("s/study.json",), ()], ids=["second", "alone"])
@pytest.mark.parametrize(
    "entry",
    [
        *("../evil", "/etc/evil", "s/../../evil", "s/evil.pkl", "s/.jobs/1/evil.pkl", "s/.code/1/hpcddp/cli.py"),
        *("s/.jobs/../job.sbatch", "s/.jobs/./job.sbatch", "s/.jobs/../../job.sbatch"),
        member("s/study.json", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("s/study.json", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
        member(f"s/{LABEL}/r1/1.0/nodes/x.json", type=tarfile.FIFOTYPE),
        member("s/study.json", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        member("s/x", type=tarfile.DIRTYPE),
        member("../study.json"),
        member("s\ncluster: x/study.json"),
    ],
    ids=lambda entry: entry if isinstance(entry, str) else f"{entry.name}-{entry.type!r}",
)
def test_what_no_bundle_holds_is_refused(tmp_path: Path, entry: tarfile.TarInfo | str, first: tuple[str, ...]) -> None:
    (tmp_path / "in").mkdir()
    file = archive_of(tmp_path / "in" / "b.tar.gz", *first, entry)
    with pytest.raises(UsageError, match="not from `hpcddp bundle`"), opened_study(file):
        pass
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "in", file]


def test_a_bundle_that_cannot_fit_is_refused(tmp_path: Path) -> None:
    """A header that claims a petabyte, and one whose own length does: neither is read."""
    huge = member("s/study.json", size=10**15)
    header = huge.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "file.tar.gz").write_bytes(gzip.compress(header))
    pax = member("x", size=1 << 33, type=tarfile.XHDTYPE).tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "pax.tar.gz").write_bytes(gzip.compress(pax + b"\0" * 512))
    for name, says in (("file", "GB, more than the free space"), ("pax", "a header in it is too long")):
        with pytest.raises(UsageError, match=says), opened_study(tmp_path / f"{name}.tar.gz"):
            pass


@pytest.mark.parametrize("kind", ["text", "torn", "empty", "two studies", "twice"])
def test_what_is_no_bundle_is_named(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "b.tar.gz"
    write_bundle(write_given(tmp_path / "scaling"), file)
    content = file.read_bytes()
    if kind in ("text", "torn"):
        file.write_bytes(b"hello" if kind == "text" else content[: len(content) // 2])
    else:
        archive_of(file, *{"empty": (), "two studies": ("a/study.json", "b/study.json"), "twice": ("a/study.json",) * 2}[kind])
    with pytest.raises(UsageError, match=r"b\.tar\.gz is damaged, or not from `hpcddp bundle`"), opened_study(file):
        pass


def test_the_unpacked_study_goes_again(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s", [point(1, 1)])
    write_bundle(study, tmp_path / "b.tar.gz")
    with opened_study(tmp_path / "b.tar.gz") as folder:
        assert Study(folder).study_file.is_file()
    assert not folder.exists()
    with opened_study(study.folder) as folder:
        assert folder == study.folder


def test_what_a_site_is_known_by_is_replaced(study: Study) -> None:
    with edited(study.study_file) as recorded:
        recorded["sweep"]["slurm"] = {"options": ["--comment=for bob miller", "--mail-user=carol"]}
    with edited(of_first(study, "end.json")) as end:
        words = "asked gpu-a[07,11] and gpu-a99 of login3.hpc.example.edu, see https://wiki.example.edu/x and /tmp/dave.17/x.log"
        end["gates"][0]["evidence"] = words
    with edited(of_first(study, "launch.json")) as launch:
        launch["profile"] = {"login_hosts": ["login*.hades.ac.uk"], "note": "see docs.hades.ac.uk"}
    lines = ["#SBATCH --comment=erin", '#SBATCH --comment="for frank otto"', "#SBATCH --mail-user=grace"]
    lines += [
        "/opt/zeus/py311/bin/python3.11 -c 1",
        ". /opt/zeus/py311/bin/activate",
        "/usr/bin/python3 -V",
        "module load /opt/x",
    ]
    with (study.jobs / "n01-g1-b32.r1.ab12/job.sbatch").open("a") as script:
        script.write("\n".join(lines) + "\n")
    packed, found = hidden(study)
    everything = "\n".join(data.decode() for data in found.values())
    people = ("bob", "miller", "carol", "dave", "erin", "frank", "otto", "grace")
    places = ("gpu-a", "example.edu", "/tmp/", "zeus", "hades")
    assert [secret for secret in (*people, *places) if secret in everything] == []
    assert packed.remaining == {}
    (text,) = (data.decode() for name, data in found.items() if name.endswith("/job.sbatch"))
    assert all(line in text for line in ("/usr/bin/python3 -V", "module load /path", "--comment=comment"))


def test_a_data_sets_folder_and_records_by_host_are_replaced(study: Study) -> None:
    """A point's `root` is no part of its id; transport.json has the hosts as keys."""
    with edited(study.point_file(LABEL)) as plain:
        plain["point"]["workload"]["data"]["root"] = "/scratch/g/phys042/imagenet"
    nodes = {"gpu-a07.example.edu": {"used": ["ib0"]}}
    write_json(of_first(study, "transport.json"), {"schema": 1, "library": "NCCL", "nodes": nodes})
    _, found = hidden(study)
    point_file = json.loads(found[f"{LABEL}/point.json"])
    assert (point_file["point"]["workload"]["data"]["root"], point_file["id"]) == ("/path", plain["id"])
    assert list(json.loads(found[f"{LABEL}/r1/101.0/transport.json"])["nodes"]) == ["node01"]


def test_a_normal_study_leaves_out_nothing_strange(study: Study, tmp_path: Path) -> None:
    (study.folder / "notes.txt").unlink()
    attempt = study.attempt_dir(LABEL, 1, "101", 0)
    own = [attempt / ".end.reserve", attempt / "checkpoints/00000120.ab.pt", study.jobs / "L0001/cancel", study.submit_lock / "1"]
    own += [study.jobs / name for name in ("queue.lock", "runner.lock", "runner.json", "7.smoke/smoke.json", "L0001/exit.json")]
    for file in own:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    packed = write_bundle(study, tmp_path / "b.tar.gz")
    assert packed.strange == ()
    assert ".jobs/L0001/exit.json" in members(tmp_path / "b.tar.gz")


def with_preflight(folder: Path) -> Study:
    study = write_study(folder / "s", [point(1, 1)])
    ranks = slowed(clean(1, nodes=4), "matrix_flops_per_s", 0.8, ["r002"])
    slow = slow_readings(ranks)
    record = PreflightRecord(job="7", unix_ns=1, took_s=5.0, device="cuda", ranks=tuple(ranks), slow=slow, excluded=("r002",))
    write_json(study.preflight_file("7", 0), encode(record))
    hosts = study.jobs / "7" / "preflight" / "hosts"
    hosts.parent.mkdir(parents=True)
    hosts.write_text("r000\n")
    return study


def test_what_preflight_found_is_in_the_bundle_and_its_hosts_have_other_names(tmp_path: Path) -> None:
    study = with_preflight(tmp_path)
    for pseudonymise in (False, True):
        assert write_bundle(study, tmp_path / "s.tar.gz", pseudonymise=pseudonymise, force=True).strange == ()
        with opened_study(tmp_path / "s.tar.gz") as unpacked:
            (record,) = preflights_of(Study(unpacked))
        assert (record == preflights_of(study)[0]) is not pseudonymise
    assert not any(host.startswith("r0") for host in (*record.hosts, *record.excluded))
    assert record.excluded == (record.slow[0].host,)


def test_what_earlier_versions_wrote_is_known() -> None:
    assert kind_of("n01-g4-b32-3fa9c1d2e07b/r1/4711.0/inspector/gpu-a07.example.edu-pid712.log") == "profiles"
    assert kind_of("bench-data/4711/bench-data.json") == "records"
    assert kind_of("outcomes.jsonl") == "records"


@pytest.mark.parametrize("file", ["4711/torchrun.gpu-a07.json", "4711/3/torchrun.gpu-a07.json"])
def test_what_only_the_cluster_needs_is_left_out_by_name(file: str) -> None:
    assert kind_of(f".jobs/{file}") is None
    assert why_left_out(f".jobs/{file}") != STRANGE


def test_who_logs_in_to_hosts_is_nobody(study: Study) -> None:
    """Of `--hosts` in study.json, and of a profile's node type in launch.json."""
    plain = json.loads(study.study_file.read_text())
    write_json(study.study_file, {**plain, "sweep": {**plain["sweep"], "cluster": "aws-g5 on hugo7@orion,berta@rigel"}})
    launch = next(study.folder.glob("*/r1/*/launch.json"))
    nodes = {"host": {"names": "hugo7@orion,berta@rigel"}}
    before = json.loads(launch.read_text())
    profile = {**before["profile"], "node_types": {**before["profile"].get("node_types", {}), **nodes}}
    write_json(launch, {**before, "hosts": [*before["hosts"], "orion"], "profile": profile})
    _, found = hidden(study)
    everything = "\n".join(data.decode() for data in found.values())
    assert [name for name in ("hugo7", "berta", "orion") if name in everything] == []
