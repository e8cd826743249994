"""A study in which every name and reason is an attempt to run a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcddp.analysis import analyze
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

EVIL = """"'><img src=x onerror=window.ran=1></title></style></script><script>window.ran=1</script>`<b>`$\\input{x}"""


def write_hostile(folder: Path) -> Path:
    """The folder of its report."""
    sizes = [point(1, 1, node_type=EVIL), point(1, 4, node_type=EVIL), point(2, 4, node_type=EVIL), point(1, 4, model=EVIL)]
    study = write_study(folder / "s", sizes, repeat=2, name=EVIL)
    gates = [{"name": EVIL, "passed": False, "evidence": EVIL}]
    launch = {
        **{"hosts": [EVIL], "versions": {EVIL: EVIL}, "clock": EVIL, "git_commit": EVIL, "communication": EVIL},
        **{"backend": EVIL, "launcher": EVIL, "data": {"name": EVIL}, "tf32": {EVIL: EVIL}},
    }
    odd: dict[str, Any] = {
        "gpu": EVIL,
        "env_id": EVIL,
        "launch": launch,
        "shares": {"forward": 0.25, "backward": 0.5, "other": 0.25},
    }
    for each in sizes:
        attempt = write_run(study, each, Recorded(step_ns=8 * MS, **odd, protocol={"stopped_by": EVIL}))
        (attempt / "nodes").mkdir()
        (attempt / "nodes/r000.json").write_text('{"cpu": "<img src=x onerror=window.ran=1>", "cpus": 4}')
        write_run(study, each, Recorded(step_ns=40 * MS, **odd, gates=gates, job="200"), 2)
    write_run(study, sizes[0], Recorded(step_ns=MS, state="failed", reason=EVIL, job="300"), 3)
    analyze(folder)
    return folder / "s/report"
