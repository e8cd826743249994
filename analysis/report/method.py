"""How the numbers of a report came about, for whoever has only the report; docs/method.md says it at length."""

from __future__ import annotations

METHOD = [
    (
        "step",
        "A run's step is the time its timed steps took / their number, the mean over ranks; throughput is the samples of these "
        "steps / that time. A point's is the median over its runs. Median and quantiles of steps say what a typical one is.",
    ),
    (
        "interval",
        "From six runs on, the 95 % interval of the median over runs (order statistics, no distribution assumed); the range "
        "below that, which contains the true median in 50 % (two runs) to 94 % (five) of studies; nothing for a single run. n is "
        "the number of runs. Time, hours and energy of an epoch are means over runs, with the least and the most of any run.",
    ),
    (
        "efficiency",
        "Throughput per GPU relative to the baseline's. One GPU and one full node are both shown, because neither alone tells "
        "how a step to more nodes fares. Its interval draws the runs of both medians (bootstrap), or is their extremes.",
    ),
    (
        "parts of a step",
        "Each lies between two marks on one timeline: events in the compute stream on CUDA, the host's clock on a CPU. They "
        "are means over timed steps and ranks and add up to the step; a point's are of its middle run, or of its two.",
    ),
    (
        "communication",
        "Exposed is what backward did not hide; transfer is bytes under way, peer wait is another rank being late. The breakdown "
        "comes from runs with a communication hook, throughput from runs without it.",
    ),
    (
        "not counted",
        "Warm-up steps, the step after a pause, and runs that failed a check: those are shown as rejected, with the reason. GPU "
        "types, node types and software environments are never averaged together.",
    ),
]
"""Term, what it means."""
