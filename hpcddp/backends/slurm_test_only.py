"""What Slurm says of a job script without taking it: `sbatch --test-only`. Checked against Slurm 22.05."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from hpcddp.backends import slurm_commands
from hpcddp.backends.slurm_commands import SBATCH_RETRIES, UNANSWERED, UnansweredError
from hpcddp.core.records import write_file

_NOT_JUDGED = re.compile(
    r"^sbatch: fatal: |Rate limit exceeded|backup controller in standby mode|Protocol authentication error|Incompatible versions",
    re.MULTILINE,
)
"""No controller has judged the request: sbatch found none (`Could not establish a configuration source`), or it would not hear
(slurm_errno.c)."""

_PREFIX = re.compile(r"^(sbatch: )?((error|fatal): )?(allocation failure: |Batch job submission failed: )?")

_UNSPECIFIC = {
    "Unspecified error",
    "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
    'Try "sbatch --help" for more information',
}
"""sbatch's last line where one before says more: the words of a job_submit plug-in, or the limit that is passed."""


def test_only(script: str, timeout_s: float) -> str | None:
    """None where Slurm would take the script, else its words; UnansweredError without an answer, HpcddpError without sbatch."""
    with tempfile.TemporaryDirectory(prefix="hpcddp-") as folder:
        file = Path(folder) / "job.sbatch"
        write_file(file, script)
        done = slurm_commands.run_command(["sbatch", "--test-only", str(file)], timeout_s)
    if done.returncode == 0:
        return None
    text = done.stderr.strip() or f"it exited with code {done.returncode} without a message"
    if done.returncode < 0 or SBATCH_RETRIES in text or UNANSWERED.search(text) or _NOT_JUDGED.search(text):
        raise UnansweredError(f"sbatch: {_PREFIX.sub('', text.splitlines()[-1])}")
    return refusal_words(text)


def refusal_words(stderr: str) -> str:
    """sbatch's words in one line, without its name and without what says nothing."""
    lines = [words for line in stderr.splitlines() if (words := _PREFIX.sub("", line.strip()))]
    return "; ".join([words for words in lines if words not in _UNSPECIFIC] or lines[-1:])
