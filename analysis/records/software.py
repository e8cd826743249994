"""Software environments: what a launch recorded of its own, and how a study's are told apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hpcddp.analysis.util.wording import shortened
from hpcddp.core.launch_record import LaunchRecord

PROPER = {
    "torch": "torch",
    **{"cuda": "CUDA", "rocm": "ROCm", "nccl": "NCCL", "rccl": "RCCL"},
    **{"python": "Python", "cudnn": "cuDNN", "miopen": "MIOpen"},
    **{"torchvision": "torchvision", "hpcddp": "hpcddp"},
}
"""Key of launch.json's versions -> how it is written; what changes times most comes first."""

AROUND = ("APPTAINER_NAME", "SINGULARITY_NAME", "CH_RUNNING", "CONDA_DEFAULT_ENV", "VIRTUAL_ENV", "LOADEDMODULES")
"""Variables that name a container, an environment or modules."""

MEMORY = "freed memory"

LETTERS = 24
"""Letters of such a variable in a name, as long as that many are enough to distinguish values."""


def software(launch: LaunchRecord) -> dict[str, str]:
    """The versions of what is installed, and whatever else may tell environments apart."""
    found = {PROPER.get(name, name): version for name, version in launch.versions.items()}
    found |= {MEMORY: launch.freed_memory, **{name: launch.environment.get(name) for name in AROUND}}
    return {name: str(value) for name, value in found.items() if value is not None}


def version_words(facts: Mapping[str, str]) -> str:
    """`torch 2.3.0, CUDA 12.1`, what matters most first."""
    return ", ".join(f"{name} {facts[name]}" for name in sorted(facts, key=_weight) if name not in (MEMORY, *AROUND))


def environment_names(found: Iterable[tuple[str, Mapping[str, str]]]) -> dict[str, str]:
    """Id of an environment -> `torch 2.3.0`: the first item that differs, and more items only where that is not enough.

    `found`: the id and the software of each run. An item that differs between runs of one environment is not used. The id is in
    the name only where no item tells the environment from the others.
    """
    runs: dict[str, list[Mapping[str, str]]] = {}
    for env_id, facts in found:
        runs.setdefault(env_id, []).append(facts)
    told: list[tuple[str, ...]] = [() for _ in runs]
    for name in sorted({name for each in runs.values() for facts in each for name in facts}, key=_weight):
        values = [{facts.get(name) for facts in each} for each in runs.values()]
        texts = _texts(name, [of_one.pop() for of_one in values]) if all(len(of_one) == 1 for of_one in values) else []
        longer = [(*before, text) for before, text in zip(told, texts, strict=False)]
        told = longer if len(set(longer)) > len(set(told)) else told
    return {
        env_id: ", ".join(texts) if texts and told.count(texts) == 1 else ", ".join([*texts, f"environment {env_id}"])
        for env_id, texts in zip(runs, told, strict=True)
    }


def _texts(name: str, values: Sequence[str | None]) -> list[str]:
    known = [value for value in values if value is not None]
    short = dict(zip(known, shortened(known, LETTERS) if name in AROUND else known, strict=True))
    return [f"no {name}" if value is None else f"{name} {short[value]}" for value in values]


def _weight(name: str) -> tuple[bool, int, str]:
    order = [*PROPER.values()]
    return name in AROUND, order.index(name) if name in order else len(order), name
