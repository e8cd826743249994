"""Software environments: what a launch recorded of its own, and what tells those of a study apart."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from hpcddp.analysis.util.wording import shortened
from hpcddp.core.launch_record import LaunchRecord

PROPER = {
    **{"torch": "torch", "cuda": "CUDA", "rocm": "ROCm", "nccl": "NCCL", "rccl": "RCCL", "python": "Python"},
    **{"cudnn": "cuDNN", "miopen": "MIOpen", "torchvision": "torchvision", "hpcddp": "hpcddp"},
}
"""Key of launch.json's versions -> how it is written; what changes times most comes first."""

VERSIONED = [*PROPER.values()]

AROUND = ("APPTAINER_NAME", "SINGULARITY_NAME", "CH_RUNNING", "CONDA_DEFAULT_ENV", "VIRTUAL_ENV", "LOADEDMODULES")
"""Variables that name a container, an environment or modules."""

LETTERS = 24
"""Letters of such a variable in a name, as long as that many are enough to distinguish values."""


def software(launch: LaunchRecord) -> dict[str, str]:
    """The versions of what is installed, and whatever else may tell environments apart."""
    found = {PROPER.get(name, name): version for name, version in launch.versions.items()}
    found |= {"freed memory": launch.freed_memory, **{name: launch.environment.get(name) for name in AROUND}}
    return {name: str(found[name]) for name in sorted(found, key=_weight) if found[name] is not None}


def version_words(facts: Mapping[str, str]) -> str:
    """`torch 2.3.0, CUDA 12.1`"""
    return ", ".join(f"{name} {version}" for name, version in facts.items() if name not in ("freed memory", *AROUND))


def environment_names(found: Iterable[tuple[str | None, Mapping[str, str]]]) -> dict[str | None, str]:
    """Id of an environment -> `torch 2.3.0`: the first item that differs, and more items only where that is not enough.

    `found`: the id and the software of each run. An item that differs between runs of one environment is not used. The id is in
    the name only where no item tells the environment from the others.
    """
    runs: dict[str | None, list[Mapping[str, str]]] = {}
    for env_id, facts in found:
        runs.setdefault(env_id, []).append(facts)
    chosen: list[tuple[str, ...]] = [() for _ in runs]
    for name in sorted({name for each in runs.values() for facts in each for name in facts}, key=_weight):
        values = [{facts.get(name, "") for facts in each} for each in runs.values()]
        if all(len(of_one) == 1 for of_one in values):
            texts = shortened([of_one.pop() for of_one in values], LETTERS if name in AROUND else sys.maxsize)
            longer = [(*of, f"{name} {text}" if text else f"no {name}") for of, text in zip(chosen, texts, strict=True)]
            chosen = longer if len(set(longer)) > len(set(chosen)) else chosen
    of_id = dict(zip(runs, chosen, strict=True))
    unclear = {env_id for env_id, texts in of_id.items() if not texts or chosen.count(texts) > 1}
    return {each: ", ".join([*texts, *([f"environment {each}"] if each in unclear else [])]) for each, texts in of_id.items()}


def _weight(name: str) -> tuple[bool, int, str]:
    return name in AROUND, VERSIONED.index(name) if name in VERSIONED else len(VERSIONED), name
