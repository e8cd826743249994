"""What preflight found travels with a study, its hosts under other names where the study's are."""

from __future__ import annotations

from pathlib import Path

from hpcddp.core.preflight_judgement import slow_readings
from hpcddp.core.preflight_record import PreflightRecord
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.share.bundle import pack
from hpcddp.share.unbundle import opened_study
from hpcddp.study.study_status import read_preflights
from tests.analysis.synthetic import point, write_study
from tests.preflight_sets import clean, slowed


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
    packed = pack(study, archive)
    assert packed.strange == ()
    with opened_study(archive) as unpacked:
        assert read_preflights(Study(unpacked)) == read_preflights(study)


def test_its_hosts_have_other_names(tmp_path: Path) -> None:
    """The same one wherever it stands."""
    archive = tmp_path / "s.tar.gz"
    pack(with_preflight(tmp_path), archive, pseudonymise=True)
    with opened_study(archive) as unpacked:
        (record,) = read_preflights(Study(unpacked))
    assert not any(host.startswith("r0") for host in (*record.hosts, *record.excluded))
    assert record.excluded == (record.slow[0].host,)
