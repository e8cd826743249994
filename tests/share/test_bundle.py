"""A bundle holds what analysis reads, no more, always in the same bytes; one from elsewhere is opened with suspicion."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from hpcddp.analysis import analyze
from hpcddp.core.errors import UsageError
from hpcddp.core.point import point_from_dict
from hpcddp.core.preflight_judgement import slow_readings
from hpcddp.core.preflight_record import PreflightRecord
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.share.bundle import write_bundle
from hpcddp.share.unbundle import opened_study
from hpcddp.study.study_status import preflights_of
from tests.analysis.study.test_accuracy import training as sized
from tests.analysis.study.test_accuracy import trainings
from tests.analysis.synthetic import point, write_study
from tests.given_study import ALICE, SECRETS, write_given
from tests.preflight_sets import clean, slowed

LABEL = point(1, 1).label


def members(bundle: Path) -> dict[str, bytes]:
    """Path -> bytes of its files, without the study's folder."""
    with tarfile.open(bundle) as archive:
        found = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        return {name.partition("/")[2]: source.read() for name, source in found.items() if source is not None}


def files(folder: Path) -> dict[str, bytes]:
    """By name, but for what analysis keeps for itself of what it has read, and where."""
    found = (file for file in sorted(folder.rglob("*")) if file.is_file() and ".analysis" not in file.parts)
    return {str(file.relative_to(folder)): file.read_bytes() for file in found}


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


@pytest.mark.dear
def test_a_bundle_analyzes_the_same(tmp_path: Path) -> None:
    """Every file of the report, byte by byte."""
    study = write_given(tmp_path / "scaling")
    before = analyze(study.folder, tmp_path / "here")[0]
    write_bundle(study, tmp_path / "b.tar.gz")
    with opened_study(tmp_path / "b.tar.gz") as folder:
        after = analyze(folder, tmp_path / "there")[0]
    assert before.plain == after.plain
    assert files(tmp_path / "here") == files(tmp_path / "there")


@pytest.mark.dear
def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    """Code, pickles, links, strange files; reports of their own making. What is in is records, scripts, logs."""
    study = write_given(tmp_path / "scaling")
    analyze(study.folder)
    study.submit_lock.mkdir()
    (study.submit_lock / "1").touch()
    packed = write_bundle(study, tmp_path / "b.tar.gz")
    assert {reason.partition(":")[0] for reason in packed.left_out} == {
        "the snapshot of the code that ran",
        "the report",
        "locks and what only this machine's queue needs",
        "submitit's pickles",
        "links",
        "files that hpcddp did not write",
    }
    assert not [path for path in packed.strange if path.startswith((".analysis", ".jobs/lock"))]
    assert packed.files == {"records": 18, "nodes": 12, "scripts": 2, "logs": 1}
    names = members(tmp_path / "b.tar.gz")
    assert not [name for name in names if name.endswith(".pkl") or name.startswith((".code", "report")) or "notes" in name]
    assert json.loads(names["bundle.json"])["left_out"] == packed.left_out


def test_files_that_hpcddp_did_not_write_are_named(tmp_path: Path) -> None:
    """The first three: someone may have meant one of them to go along."""
    study = write_given(tmp_path / "scaling")
    for name in ("zz", "plan.md", "b.ipynb", "a.ipynb"):
        (study.folder / name).touch()
    assert write_bundle(study, tmp_path / "b.tar.gz").strange == ("a.ipynb", "b.ipynb", "notes.txt")


def test_equal_studies_are_equal_bytes(tmp_path: Path) -> None:
    """Wherever and whenever they are packed, by whomever; with pseudonyms, too."""
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
    """Its folder says that the run was started: `has not ended`, not `not started`."""
    study = write_study(tmp_path / "s", [point(1, 1)])
    study.attempt_dir(LABEL, 1, "7", 0).mkdir(parents=True)
    write_bundle(study, tmp_path / "b.tar.gz")
    with opened_study(tmp_path / "b.tar.gz") as folder:
        assert "attempt 7.0 has not ended" in analyze(folder, tmp_path / "out")[0].text


def test_nobody_is_named_in_a_pseudonymised_bundle(tmp_path: Path) -> None:
    """Not in a file's name, not in its text: hosts, users, accounts, mail, addresses, home and scratch."""
    packed = write_bundle(write_given(tmp_path / "scaling"), tmp_path / "b.tar.gz", pseudonymise=True)
    found = members(tmp_path / "b.tar.gz")
    everything = "\n".join([*found, *(data.decode() for data in found.values())])
    assert [secret for secret in SECRETS if secret in everything] == []
    assert (packed.remaining, "logs: they may name anybody" in packed.left_out) == ({}, True)


def test_the_same_name_is_the_same_word_everywhere(tmp_path: Path) -> None:
    """In launch.json, end.json, the names of files, scripts; numbers, points and versions are as they were."""
    study = write_given(tmp_path / "scaling")
    write_bundle(study, tmp_path / "b.tar.gz", pseudonymise=True)
    write_bundle(study, tmp_path / "plain.tar.gz")
    found, before = members(tmp_path / "b.tar.gz"), members(tmp_path / "plain.tar.gz")
    attempt = f"{point(2, 1).label}/r2/102.0"
    launch, end = json.loads(found[f"{attempt}/launch.json"]), json.loads(found[f"{attempt}/end.json"])
    assert launch["hosts"] == ["node01", "node02"]
    assert launch["environment"] == {
        "SLURM_JOB_USER": "user",
        "SLURM_JOB_ACCOUNT": "account",
        "SLURM_JOB_UID": "0",
        "SLURM_JOB_NODELIST": "nodes",
        "MASTER_ADDR": "node01",
        "VIRTUAL_ENV": "/path",
        "LOADEDMODULES": "cuda/12.1:nccl/2.18",
    }
    assert (launch["data"]["root"], launch["versions"], launch["point"]) == ("/path", {"torch": "2.7.1"}, point(2, 1).id)
    assert end["reason"] == "node02 could not reach 0.0.0.0: see /path"
    assert [rank["host"] for rank in end["ranks"]] == ["node02", "node02"]
    assert {f"{attempt}/nodes/node02.json", f"{attempt}/nodes/node02.node.csv"} <= set(found)
    for name in (f"{attempt}/ranks/00000.steps.csv", f"{LABEL}/point.json"):
        assert found[name] == before[name]
    (script,) = (data.decode() for name, data in found.items() if name.endswith("/job.sbatch"))
    assert "--account=account" in script
    assert "--exclude=nodes" in script
    assert "module load /path" in script


@pytest.mark.dear
def test_a_pseudonymised_bundle_has_the_same_numbers(tmp_path: Path) -> None:
    """Rows, gates and states are untouched."""
    study = write_given(tmp_path / "scaling")
    write_bundle(study, tmp_path / "b.tar.gz", pseudonymise=True)
    before = analyze(study.folder, tmp_path / "here")[0].plain
    with opened_study(tmp_path / "b.tar.gz") as folder:
        assert analyze(folder, tmp_path / "there")[0].plain["points"] == before["points"]


def test_a_name_that_is_a_word_of_the_point_is_not_replaced_in_silence(tmp_path: Path) -> None:
    """A user called as the cluster: another point it would be, so the name stays, and is told."""
    study = write_given(tmp_path / "scaling")
    plain = json.loads(study.point_file(LABEL).read_text())
    plain["point"]["cluster"] = "alice"
    plain["id"] = point_from_dict(plain["point"]).id
    write_json(study.point_file(LABEL), plain)
    with pytest.raises(UsageError, match=rf"{LABEL}/point.json has alice\n.*no bundle was written: .* --yes"):
        write_bundle(study, tmp_path / "b.tar.gz", pseudonymise=True)
    assert list(tmp_path.iterdir()) == [tmp_path / "scaling"]


def test_names_that_stay_are_told(tmp_path: Path) -> None:
    """What a sweep is called is no secret to hpcddp; it says so when it holds a name."""
    study = write_given(tmp_path / "scaling")
    recorded = json.loads(study.study_file.read_text())
    write_json(study.study_file, {**recorded, "name": "alice-scaling"})
    packed = write_bundle(study, tmp_path / "b.tar.gz", pseudonymise=True, yes=True)
    assert packed.remaining == {"study.json": ("alice",)}


def test_torn_records_stay_torn(tmp_path: Path) -> None:
    """Half a launch.json is given away without its names, and is still half a launch.json."""
    study = write_given(tmp_path / "scaling")
    (launch,) = (study.folder / LABEL / "r1").glob("*/launch.json")
    launch.write_text(f'{{"hosts": ["gpu-a07.example.edu"], "home": "{ALICE}/x", "a')
    write_bundle(study, tmp_path / "b.tar.gz", pseudonymise=True)
    assert members(tmp_path / "b.tar.gz")[f"{LABEL}/r1/101.0/launch.json"].startswith(b'{"hosts": ["node01"], "home": "/path')


def test_a_file_is_replaced_only_when_asked(tmp_path: Path) -> None:
    """And what a packing that failed leaves is what was there before."""
    study = write_study(tmp_path / "s", [point(1, 1)])
    (tmp_path / "b.tar.gz").write_text("mine")
    with pytest.raises(UsageError, match=r"already there.*--force"):
        write_bundle(study, tmp_path / "b.tar.gz")
    assert (tmp_path / "b.tar.gz").read_text() == "mine"
    write_bundle(study, tmp_path / "b.tar.gz", force=True)
    assert "study.json" in members(tmp_path / "b.tar.gz")


@pytest.mark.parametrize("first", [("s/study.json",), ()], ids=["second", "alone"])
@pytest.mark.parametrize(
    "entry",
    [
        "../evil",
        "/etc/evil",
        "s/../../evil",
        "s/evil.pkl",
        "s/.jobs/1/evil.pkl",
        "s/.code/1/hpcddp/cli.py",
        "s/.jobs/../job.sbatch",
        "s/.jobs/./job.sbatch",
        "s/.jobs/../../job.sbatch",
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
    """Paths that lead elsewhere, links, devices, pickles, code: named, and nothing is written anywhere."""
    (tmp_path / "in").mkdir()
    file = archive_of(tmp_path / "in" / "b.tar.gz", *first, entry)
    with pytest.raises(UsageError, match="not a bundle that `hpcddp bundle` wrote"), opened_study(file):
        pass
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "in", file]


def test_a_bundle_that_cannot_fit_is_refused(tmp_path: Path) -> None:
    """A header that claims a petabyte, and one whose own length does: neither is read."""
    huge = member("s/study.json", size=10**15)
    header = huge.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "file.tar.gz").write_bytes(gzip.compress(header))
    pax = member("x", size=1 << 33, type=tarfile.XHDTYPE).tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "pax.tar.gz").write_bytes(gzip.compress(pax + b"\0" * 512))
    for name, says in (("file", "GB, which do not fit"), ("pax", "a header in it is too long")):
        with pytest.raises(UsageError, match=says), opened_study(tmp_path / f"{name}.tar.gz"):
            pass


@pytest.mark.parametrize("kind", ["text", "torn", "empty", "two studies", "twice"])
def test_what_is_no_bundle_is_named(tmp_path: Path, kind: str) -> None:
    """A file of another kind, one cut off, one without a study: exit code 2 with its name."""
    file = tmp_path / "b.tar.gz"
    write_bundle(write_given(tmp_path / "scaling"), file)
    content = file.read_bytes()
    if kind in ("text", "torn"):
        file.write_bytes(b"hello" if kind == "text" else content[: len(content) // 2])
    else:
        archive_of(file, *{"empty": (), "two studies": ("a/study.json", "b/study.json"), "twice": ("a/study.json",) * 2}[kind])
    with pytest.raises(UsageError, match=r"b\.tar\.gz: not a bundle that `hpcddp bundle` wrote, or damaged"), opened_study(file):
        pass


def test_the_unpacked_study_goes_again(tmp_path: Path) -> None:
    """A folder is used as it is."""
    study = write_study(tmp_path / "s", [point(1, 1)])
    write_bundle(study, tmp_path / "b.tar.gz")
    with opened_study(tmp_path / "b.tar.gz") as folder:
        assert Study(folder).study_file.is_file()
    assert not folder.exists()
    with opened_study(study.folder) as folder:
        assert folder == study.folder


def test_what_a_site_is_known_by_is_replaced(tmp_path: Path) -> None:
    """The login node's Python, temporary folders, lists of hosts, the site's domain, a comment: in JSON and scripts."""
    study = write_given(tmp_path / "scaling")
    recorded = json.loads(study.study_file.read_text())
    recorded["sweep"]["slurm"] = {"options": ["--comment=for bob miller", "--mail-user=carol"]}
    write_json(study.study_file, recorded)
    (end,) = (study.folder / LABEL / "r1").glob("*/end.json")
    plain = json.loads(end.read_text())
    plain["gates"][0]["evidence"] = (
        "asked gpu-a[07,11] and gpu-a99 of login3.hpc.example.edu, see https://wiki.example.edu/x and /tmp/dave.17/x.log"
    )
    write_json(end, plain)
    (launch,) = (study.folder / LABEL / "r1").glob("*/launch.json")
    known = json.loads(launch.read_text())
    write_json(launch, {**known, "profile": {"login_hosts": ["login*.hades.ac.uk"], "note": "see docs.hades.ac.uk"}})
    script = study.jobs / "n01-g1-b32.r1.ab12/job.sbatch"
    lines = ["#SBATCH --comment=erin", '#SBATCH --comment="for frank otto"', "#SBATCH --mail-user=grace"]
    lines += [
        "/opt/zeus/py311/bin/python3.11 -c 1",
        ". /opt/zeus/py311/bin/activate",
        "/usr/bin/python3 -V",
        "module load /opt/x",
    ]
    script.write_text(script.read_text() + "\n".join(lines) + "\n")
    packed = write_bundle(study, tmp_path / "b.tar.gz", pseudonymise=True)
    found = members(tmp_path / "b.tar.gz")
    everything = "\n".join(data.decode() for data in found.values())
    people = ("bob", "miller", "carol", "dave", "erin", "frank", "otto", "grace")
    places = ("gpu-a", "example.edu", "/tmp/", "zeus", "hades")
    assert [secret for secret in (*people, *places) if secret in everything] == []
    assert packed.remaining == {}
    (script_text,) = (data.decode() for name, data in found.items() if name.endswith("/job.sbatch"))
    assert all(line in script_text for line in ("/usr/bin/python3 -V", "module load /path", "--comment=comment"))


def test_what_cannot_be_replaced_is_named(tmp_path: Path) -> None:
    """Hosts that no record knows, and a path in words that must stay as they are."""
    study = write_given(tmp_path / "scaling")
    (end,) = (study.folder / LABEL / "r1").glob("*/end.json")
    plain = json.loads(end.read_text())
    plain["gates"][0] |= {"name": "see /home/bob/x", "evidence": "hera[1-4] was down, says https://wiki.hera.net/x"}
    write_json(end, plain)
    packed = write_bundle(study, tmp_path / "b.tar.gz", pseudonymise=True, yes=True)
    assert packed.remaining == {f"{LABEL}/r1/101.0/end.json": ("/home/bob/x", "bob", "hera[1-4]")}


def test_a_data_sets_folder_and_records_by_host_are_replaced(tmp_path: Path) -> None:
    """A point's `root` is no part of its id; transport.json has the hosts as keys."""
    study = write_given(tmp_path / "scaling")
    plain = json.loads(study.point_file(LABEL).read_text())
    plain["point"]["workload"]["data"]["root"] = "/scratch/g/phys042/imagenet"
    write_json(study.point_file(LABEL), plain)
    (attempt,) = (study.folder / LABEL / "r1").glob("*.0")
    write_json(attempt / "transport.json", {"schema": 1, "library": "NCCL", "nodes": {"gpu-a07.example.edu": {"used": ["ib0"]}}})
    write_bundle(study, tmp_path / "b.tar.gz", pseudonymise=True)
    found = members(tmp_path / "b.tar.gz")
    point_file = json.loads(found[f"{LABEL}/point.json"])
    assert (point_file["point"]["workload"]["data"]["root"], point_file["id"]) == ("/path", plain["id"])
    assert list(json.loads(found[f"{LABEL}/r1/101.0/transport.json"])["nodes"]) == ["node01"]


def test_a_normal_study_leaves_out_nothing_strange(tmp_path: Path) -> None:
    """What hpcddp itself keeps beside records is known by its name: room for end.json, checkpoints, locks, local runs."""
    study = write_given(tmp_path / "scaling")
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
    record = PreflightRecord(
        job="7", unix_ns=1, took_s=5.0, device="cuda", ranks=tuple(ranks), slow=slow_readings(ranks), excluded=("r002",)
    )
    write_json(study.preflight_file("7", 0), encode(record))
    hosts = study.jobs / "7" / "preflight" / "hosts"
    hosts.parent.mkdir(parents=True)
    hosts.write_text("r000\n")
    return study


def test_the_record_is_in_the_bundle(tmp_path: Path) -> None:
    """And the list of hosts that a script read is not, which is said."""
    study, archive = with_preflight(tmp_path), tmp_path / "s.tar.gz"
    packed = write_bundle(study, archive)
    assert packed.strange == ()
    with opened_study(archive) as unpacked:
        assert preflights_of(Study(unpacked)) == preflights_of(study)


def test_its_hosts_have_other_names(tmp_path: Path) -> None:
    """The same one wherever it stands."""
    archive = tmp_path / "s.tar.gz"
    write_bundle(with_preflight(tmp_path), archive, pseudonymise=True)
    with opened_study(archive) as unpacked:
        (record,) = preflights_of(Study(unpacked))
    assert not any(host.startswith("r0") for host in (*record.hosts, *record.excluded))
    assert record.excluded == (record.slow[0].host,)


@pytest.mark.dear
@pytest.mark.parametrize("pseudonymise", [False, True])
def test_a_bundle_has_every_epoch(tmp_path: Path, pseudonymise: bool) -> None:
    """With or without names of hosts and people: without its epochs.csv the run would be rejected."""
    study = trainings(tmp_path / "s", {sized(1): [((50, 90), 10.0)] * 2, sized(2): [((60, 91), 6.0)] * 2})
    before = analyze(study.folder, tmp_path / "here")[0].plain
    write_bundle(study, tmp_path / "b.tar.gz", pseudonymise=pseudonymise)
    with opened_study(tmp_path / "b.tar.gz") as folder:
        after = analyze(folder, tmp_path / "there")[0].plain
    assert (len(before["epochs"]), before["runs"]["pass"]) == (8, 4)
    for of in ("epochs", "to_accuracy", "sentences", "runs"):
        assert before[of] == after[of]
