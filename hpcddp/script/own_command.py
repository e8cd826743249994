"""A command of the user's own as ranks run it: in the profile's environment, and without a launcher that each would start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from pathlib import Path

from hpcddp.core.errors import UsageError
from hpcddp.script.job_request import JobRequest

PYTHON, SHELL, ASSIGNMENT = re.compile(r"(.*/)?python[\d.]*"), re.compile("(ba|z|k|da)?sh"), re.compile(r"\w+\+?=")
OF_TORCH = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
"""Launchers that read torchrun's variables (PET_NNODES, ...)."""

LAUNCHERS = {
    *(*OF_TORCH, "accelerate launch", "accelerate.commands.launch", "deepspeed", "deepspeed.launcher.runner", "horovodrun"),
    *("composer", "colossalai", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "srun", "jsrun", "aprun", "ibrun"),
}
"""Programs, and modules of `python -m`, that start ranks themselves."""

IN_FRONT = {
    *(
        "env",
        "exec",
        "eval",
        "nohup",
        "time",
        "timeout",
        "nice",
        "ionice",
        "numactl",
        "taskset",
        "stdbuf",
        "setsid",
        "nsys",
        "ncu",
    ),
    *("uv", "uvx", "poetry", "pdm", "hatch", "pixi", "pipenv", "conda", "mamba", "micromamba", "apptainer", "singularity"),
    *("if", "then", "else", "do", "!", "{"),
}
"""Commands whose arguments are another command, and words of the shell before one."""


def in_environment(words: Sequence[str], python: str) -> str:
    """Shell text of the command where `python`, the profile's (shell text too), is first on PATH with what lies beside it. What
    stands before that Python (`uv run`, a container) stands before the command, once.
    """
    own = shlex.split(python, posix=False)  # with its quotes and variables
    at = next((at for at, word in enumerate(own) if PYTHON.fullmatch(word.strip("\"'"))), len(own) - 1)
    if at and list(words[:at]) == own[:at]:
        words = words[at:]
    is_python = words[0] in ("python", "python3") and own[at:] not in (["python"], ["python3"])
    text = " ".join([*own[at:], shlex.join(words[1:])]) if is_python else shlex.join(words)
    first = f"""sh -c 'PATH="${{0%/*}}:$PATH"; export PATH; exec "$@"' {own[at]} """ if re.search("[/$]", own[at]) else ""
    return " ".join([*own[:at], f"{first}{text}"])


def check_launcher(words: Sequence[str], request: JobRequest) -> None:
    """UsageError for a launcher in the command that every rank would start, or that would meet too few nodes."""
    found = next(_launchers(words), None)
    if found is None or (found != "srun" and request.nodes * request.tasks_per_node == 1):
        return
    if found not in OF_TORCH or request.launcher != "torchrun":
        once = " Use `--set layout.launcher=torchrun`, which starts it once per node, or" if found in OF_TORCH else ""
        raise UsageError(
            f"`{found}` starts ranks, but hpcddp starts the command once per GPU.{once or ' Instead,'} give the program itself "
            "(`-- python train.py`): it has RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."
        )
    given = re.search(r"--standalone|--nnodes[= ](\S+)", " ".join(words))
    if given and request.nodes > 1 and given[1] != str(request.nodes):
        apart = f"`{found} {given[0]}` on {request.nodes} nodes: each would train by itself"
        raise UsageError(f"{apart}. Remove it; hpcddp sets PET_NNODES.")


def _launchers(words: Sequence[str]) -> Iterator[str]:
    """Those that the words start before any program of the user's."""
    for at, word in enumerate(words):
        name, rest = word.rpartition("/")[2], words[at + 1 :]
        named = f"{name} {rest[0]}" if rest and name == "accelerate" else name
        if named in LAUNCHERS:
            yield named
        elif PYTHON.fullmatch(name):
            before = takewhile(lambda each: not each.endswith(".py"), rest)
            yield from {next((module for option, module in pairwise(before) if option == "-m"), "")} & LAUNCHERS
        elif SHELL.fullmatch(name) or name.endswith(".sh"):
            yield from _in_shell(rest if SHELL.fullmatch(name) else [word])
        elif name in IN_FRONT or ASSIGNMENT.match(word) or (at and "/" not in word and not name.endswith(".py")):
            continue
        return


def _in_shell(words: Sequence[str]) -> Iterator[str]:
    """Of the text behind `-c`, or of a script that can be read here."""
    text = next((text for option, text in pairwise(words) if re.fullmatch("-[a-z]*c", option)), None)
    if text is None:
        file = next((word for word in words if not word.startswith("-")), "")
        try:
            text = Path(file).read_text(encoding="utf-8", errors="replace") if Path(file).is_file() else ""
        except OSError:  # the ranks may see more than this node does
            text = ""
    for part in re.split(r"[;&|()\n]+", text.replace("\\\n", " ")):
        try:
            yield from _launchers(shlex.split(part, comments=True))
        except ValueError:  # it ends in quotes
            continue
