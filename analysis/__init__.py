"""Records in; scaling table, sentence, figures, CSV and JSON out. The one public function is `analyze`.

Each room imports only those of lower layers; docs/architecture.md has the layers, and the path of a run through them.
It reads records and nothing else: no torch, no submitit, no pickle. Imported as `hpcddp.analysis` (a link) only.
"""

from __future__ import annotations

if __name__ == "analysis":
    raise ImportError("this folder is imported as `hpcddp.analysis`: from hpcddp.analysis import analyze")

from hpcddp.analysis.report.api import analyze
from hpcddp.analysis.report.result import How, StudyResult

__all__ = ["How", "StudyResult", "analyze"]
