"""The language model that comes with hpcddp, as small as its arguments make it."""

ARGUMENTS = {"depth": 1, "width": 16, "heads": 2, "length": 16, "batch": 2, "vocabulary": 64}

SETTINGS = (
    "device=cpu",
    f"workload.args={{{', '.join(f'{name}: {value}' for name, value in ARGUMENTS.items())}}}",
    "workload.samples_per_step=2",
    "measure.warmup_steps=3",
    "measure.steps=12",
    "repeat=1",
    "layout.physical_cores_per_rank=1",
)
"""Of its sweep, so that it runs on two ranks of any machine."""
