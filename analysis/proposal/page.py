"""A proposal in words: the blocks of its page, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from hpcddp.analysis.proposal.blocks import Block, CellOf, Heading, Items, Picture, Text, rows_table, text_table
from hpcddp.analysis.proposal.proposal import ENOUGH, Choice, EpochCosts, MeasuredSize, Proposal, Span, row_of_readings
from hpcddp.analysis.report.table import UNKNOWN, Cell, Table, giga, number_cell, number_of, text_cell, words_of
from hpcddp.analysis.report.tables import accuracy_cell, accuracy_spread, range_words, reached_cell, trained_cell
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.axis_words import effect_sentence
from hpcddp.analysis.study.effects import Ratio
from hpcddp.analysis.study.series import full_names
from hpcddp.analysis.study.trained import Facts, trained
from hpcddp.analysis.util.wording import percent, percent_within, percents, quantity, time_words, times, unit, units
from hpcddp.analysis.verdicts.context import data_wait
from hpcddp.analysis.verdicts.sentence import sentence, target_sentences
from hpcddp.analysis.verdicts.verdicts import doubts
from hpcddp.core.own_script import command_text
from hpcddp.core.study_files import FEWEST
from hpcddp.core.text import count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hpcddp.analysis.figures.style import Style

SHOWN_FACTS = 3
"""Values of one fact; the report has the others."""

CAPTIONS = {"scaling": "Throughput", "efficiency": "Efficiency"}
"""By a figure's name, what it shows."""

PARALLEL = {
    "ddp": "with PyTorch's DistributedDataParallel",
    "data_parallel": "with PyTorch's DataParallel, one process for all GPUs",
    "fsdp": "with PyTorch's fully_shard, parameters sharded over all GPUs",
    "hsdp": "with PyTorch's fully_shard, parameters sharded over the GPUs of a node, a copy on each node",
    "none": "in one process without data parallelism",
    "all_reduce": "with each parameter's gradient all-reduced by hand after backward",
    "gather_scatter": "with each parameter's gradient gathered, averaged and scattered by hand after backward",
}
"""What spreads a model over devices, by the workload's `parallel`."""


def page(found: Proposal, figures: Sequence[str] = ()) -> list[Block]:
    """`figures`: names of those that lie beside the page."""
    blocks: list[Block] = [Heading(f"Scaling and resources: {found.name}"), Text(summary(found))]
    blocks += [Text(workload_words(found)), Text(method_words(found))]
    blocks += [Heading("Hardware and software"), Items(list(fact_lines(found)))]
    blocks += [Heading(found.kind[:1].upper() + found.kind[1:]), scaling_table(found)]
    blocks += [Picture(name, f"{CAPTIONS[name]} of {found.name} against {baselines(found)}.") for name in figures]
    blocks += [Heading("Job size"), Text(job_size(found))]
    blocks += [Heading("Resources"), *resources(found), *gpu_use(found)]
    blocks += [*accuracy_blocks(found), *what_changes_it(found)]
    if unknown := list(unknown_lines(found)):
        blocks += [Heading("Not known"), Items(unknown)]
    return [*blocks, Heading("Runs behind the numbers"), Items([_source(found, size) for size in found.sizes])]


def summary(found: Proposal) -> str:
    """The sentence of the study on this series, which one it is, and how many series the page leaves out."""
    rows = found.rows
    verb = "is" if found.others == 1 else "are"
    which = full_names(found.found.shown_apart)[rows["series"].iloc[0]]
    more = f" This is with {which}; {found.others} more series of the study {verb} not shown here." if found.others else ""
    runs = {(size.nodes, int(size.row["gpus_per_node"])): size.runs for size in found.sizes}

    def against(rows: Sequence[Any]) -> list[str]:
        return doubts(found.found.verdicts, [run for row in rows for run in runs[row["nodes"], row["gpus_per_node"]]])

    return sentence(rows, doubts=against) + more


def workload_words(found: Proposal) -> str:
    """What was trained, with which batches, and what a run is."""
    point = found.sizes[-1].runs[0].point
    assert point is not None
    workload = point.workload
    batches = sorted({int(size.row["batch_per_gpu"]) for size in found.sizes})
    totals = sorted({int(size.row["global_batch"]) for size in found.sizes})
    gpu, each, total = unit(point.device), *(" to ".join(map(str, sorted({of[0], of[-1]}))) for of in (batches, totals))
    by = f" by `{command}`" if (command := command_text(point)) else ""
    return (
        f"Measured: training of {workload.model} on {workload.data.name}{by} in {workload.precision} "
        f"{PARALLEL[workload.parallel]}, {each} samples per {gpu} and step, {total} over all {gpu}s. Work of a run: {found.kind}."
    )


def method_words(found: Proposal) -> str:
    """How the numbers come from the runs, and what stands in brackets."""
    ranges = f"{range_words(found.rows)} " if (found.rows["interval"] == "range").any() else ""
    return (
        "Samples/s is the median over n runs of the run's own: the samples of its steps after the warm-up divided by the time "
        "they took. In brackets is the 95 % interval where n is six or more, the range of the runs below that; a single run "
        f"has neither. {ranges}Efficiency is throughput per "
        f"{_unit(found)} against that of the baseline named. Time, hours and energy are means over the runs, since "
        "hours are billed by their sum. Runs that failed a check do not count."
    )


def fact_lines(found: Proposal) -> Iterator[str]:
    """On what it ran, a line a fact; what was not recorded says so."""
    machines = ("GPU", "CPU", "cluster", "date", "software")
    of_runs = trained(run for size in found.sizes for run in size.runs)
    facts: Facts = {name: of_runs[name] for name in machines if name in of_runs} | dict(found.provenance.facts)
    for name, values in facts.items():
        more = f"; and {len(values) - SHOWN_FACTS} more" if len(values) > SHOWN_FACTS else ""
        yield f"{name}: {'; '.join(values[:SHOWN_FACTS])}{more}"
    needed = ("processor",) if _device(found) == "cpu" else ("processor", "GPU driver")
    yield from (f"{name}: not recorded" for name in needed if name not in facts)


def scaling_table(found: Proposal) -> Table:
    """A row for each size."""
    gpu = _unit(found)
    node = f"vs one node ({units(int(found.sizes[0].row['full_node_gpus']), _device(found))})"
    columns: dict[str, CellOf] = {
        "nodes": number_of("nodes", str),
        f"{gpu}s": number_of("gpus", str),
        "n": number_of("n", str),
        "samples/s": lambda row: text_cell(_rate(row)),
        f"efficiency vs one {gpu}": lambda row: text_cell(_share(row["size"].vs_gpu)),
        f"efficiency {node}": lambda row: text_cell(_share(row["size"].vs_node) if row["gpus"] >= row["full_node_gpus"] else "-"),
        "epoch": number_of("epoch_s", time_words),
        "node h per epoch": number_of("node_h_per_epoch", quantity),
    }
    if found.epochs is not None:
        columns |= {"time to train": number_of("train_s", time_words), "node h to train": number_of("node_h_to_train", quantity)}
    columns["runs"] = words_of("runs")
    return rows_table(columns, ({**size.row, "size": size, "runs": found.source(size)} for size in found.sizes))


def baselines(found: Proposal) -> str:
    """What efficiencies are relative to: `one GPU and one node of 4 GPUs`."""
    gpu, each = _unit(found), int(found.sizes[0].row["full_node_gpus"])
    return f"one {gpu} and one node of {units(each, _device(found))}" if each > 1 else f"one {gpu}"


def job_size(found: Proposal) -> str:
    """The size that is asked for, and why."""
    choice = found.choice
    if choice is None:
        return (
            f"No size follows from the measurements: none of full nodes has a known efficiency of {percent(ENOUGH)} or more "
            f"against one node. --nodes N names a size nevertheless."
        )
    size = choice.size
    what = f"{_nodes(size.nodes)} ({units(int(size.row['gpus']), _device(found))}) {found.source(size)}"
    return " ".join([f"{what}: {_why(choice)}.", *_caveats(choice)])


def _why(choice: Choice) -> str:
    known = choice.size.vs_node
    share = "its efficiency against one node is not known" if known is None else f"{_share(known)} efficiency against one node"
    if choice.by_user:
        return f"as asked for; {share}"
    if choice.size.nodes == 1:
        return f"the largest size with at least {percent(ENOUGH)} efficiency against one node is one node itself"
    return f"the largest size measured with at least {percent(ENOUGH)} efficiency against one node; {share}"


def _caveats(choice: Choice) -> Iterator[str]:
    known = choice.size.vs_node
    if known is not None and known.ratio < ENOUGH:
        yield f"That is below {percent(ENOUGH)}."
    if known is not None and known.low is not None and known.low < ENOUGH <= known.ratio:
        yield f"Its {known.kind} reaches below {percent(ENOUGH)}: more runs would tell."
    if (waits := data_wait(choice.size.row)) is not None:
        yield f"Ranks wait for data for {percent(waits)} of the step."
    if choice.next is None:
        yield "Larger sizes were not measured."
    elif choice.next.vs_node is not None:
        yield f"The next larger size, {_nodes(choice.next.nodes)}, has {_share(choice.next.vs_node)}."


def resources(found: Proposal) -> list[Block]:
    """What an epoch, a training and all trainings take at that size."""
    choice, amounts = found.choice, found.costs
    if choice is None:
        return [Text("Not known without a job size.")]
    if amounts is None:
        return [Text("Not known: how many samples an epoch has was not recorded.")]
    source = found.source(choice.size)
    several = amounts.epoch_s.low is not None
    spread = "In brackets: the least and the most of any run." if several else "From one run: the spread is not known."
    pauses_s = choice.size.row["pauses_s_per_epoch"]
    took = "" if pd.isna(pauses_s) else time_words(float(pauses_s))
    pauses = f"Evaluation and checkpoints took {took} per epoch in these runs. " if took else ""
    about = (
        f"At {_nodes(choice.size.nodes)}, means over the runs of {source}. {spread} Training alone: start, evaluation, "
        f"checkpoints and failed jobs come on top. {pauses}Nodes count whole, however many of their {_unit(found)}s are used."
    )
    return [Text(about), _amounts(found, amounts)]


def _co2(found: Proposal, amounts: EpochCosts) -> Iterator[tuple[str, Span | None, Callable[[float], str]]]:
    """Of the nodes' energy where it is known, or else of the GPUs', by the factor that the user gave."""
    factor = found.co2_g_per_kwh
    of, energy = ("nodes", amounts.node_kwh) if amounts.node_kwh else ("GPUs", amounts.gpu_kwh)
    if factor is not None and energy is not None:
        yield f"CO2 of the {of}' energy, kg, at {factor:g} g per kWh", energy, lambda kwh: quantity(kwh * factor / 1000)


def _amounts(found: Proposal, amounts: EpochCosts) -> Table:
    counts = {"one epoch": 1}
    if found.epochs is not None:
        counts[f"one training ({count(found.epochs, 'epoch')})"] = found.epochs
        if found.trainings > 1:
            counts[f"{found.trainings} trainings"] = found.epochs * found.trainings
    kinds: list[tuple[str, Span | None, Callable[[float], str]]] = [
        ("time, one after the other" if found.trainings > 1 else "time", amounts.epoch_s, time_words),
        ("node hours", amounts.node_h, quantity),
        ("GPU hours", amounts.gpu_h, quantity),
        ("energy of the GPUs, kWh", amounts.gpu_kwh, quantity),
        (f"energy of the nodes with their GPUs, kWh (by {amounts.node_energy_from})", amounts.node_kwh, quantity),
        *_co2(found, amounts),
    ]
    rows = [[name, *(_spanned(span.times(many), text) for many in counts.values())] for name, span, text in kinds if span]
    return text_table(["", *counts], rows)


def unknown_lines(found: Proposal) -> Iterator[str]:
    """What the measurements leave open."""
    if found.epochs is None:
        yield "How many epochs a training takes: --epochs N, or train_epochs in the sweep, gives its node hours."
    totals = sorted({int(size.row["global_batch"]) for size in found.sizes})
    if found.costs and len(totals) > 1 and targets_of(found)["train_s"].notna().sum() < len(found.sizes):
        yield (
            f"Whether a training takes as many epochs at every size: the global batch grows from {totals[0]} to {totals[-1]}, "
            f"and convergence was not measured."
        )
    of_baselines = {
        f"one {_unit(found)}": [size.vs_gpu for size in found.sizes],
        "one node": [size.vs_node for size in found.sizes],
    }
    for name in (name for name, known in of_baselines.items() if not any(known)):
        yield f"Efficiency against {name}: that baseline has no run that counts."
    if found.costs and found.costs.gpu_kwh is None and _device(found) != "cpu":
        yield "Energy: it was not recorded."
    if found.costs and found.costs.node_kwh is None and _device(found) != "cpu":
        yield "Energy of whole nodes: they have no source that a user may read (Cray's pm_counters, Grace Hopper's module power)."
    if any(size.row["n"] < FEWEST for size in found.sizes):
        yield "95 % intervals of sizes with fewer than six runs."


def _source(found: Proposal, size: MeasuredSize) -> str:
    """`[3] n16-g4-b32-...: runs r1, r2; checks passed by each: 9 of 9; rejected: r3 (gate ...)`"""
    labels: dict[str, list[str]] = {}
    for run in size.runs:
        labels.setdefault(run.label, []).append(f"r{run.run}")
    named = "; ".join(f"{label}: {', '.join(runs)}" for label, runs in labels.items())
    passed = sorted({found.provenance.gates_of[run.name] for run in size.runs if run.name in found.provenance.gates_of})
    checks = f"checks passed by each: {' or '.join(passed)}" if passed else "no checks were recorded"
    left = "".join(f"; rejected: r{run.run} of {run.label} ({run.reason})" for run in size.rejected)
    return f"{found.source(size)} {named}; {checks}{left}"


def _rate(row: Mapping[str, Any]) -> str:
    low, high = (None if pd.isna(row[f"samples_per_s_{end}"]) else float(row[f"samples_per_s_{end}"]) for end in ("low", "high"))
    return _spanned(Span(float(row["samples_per_s"]), low, high), quantity)


def _spanned(span: Span, text: Callable[[float], str]) -> str:
    if span.low is None or span.high is None:
        return text(span.value)
    return f"{text(span.value)} ({text(span.low)} to {text(span.high)})"


def _share(known: Ratio | None) -> str:
    if known is None:
        return "unknown"
    if known.low is None or known.high is None:
        return percent(known.ratio)
    return f"{percent_within(known.ratio, known.low, known.high)} ({percents(known.low, known.high, ' to ')} %)"


def _nodes(number: int) -> str:
    return "one node" if number == 1 else count(number, "node")


def _device(found: Proposal) -> str:
    return str(found.sizes[0].row["device"])


def _unit(found: Proposal) -> str:
    return unit(_device(found))


UNEVEN_PERCENT, UNEVEN_SHARE = 10.0, 0.10
"""GPUs of one run are uneven from so many points of utilisation between least and most, or from such a share of the highest mean
power or memory: a convention."""

SHOWN_RANKS = 8
"""Of uneven ranks; the records have all."""


def gpu_use(found: Proposal) -> list[Block]:
    """The blocks of the page; none on CPUs."""
    if found.sizes[0].row["device"] == "cpu":
        return []
    rows = [{**size.row, **row_of_readings(found.found, size), "runs": found.source(size)} for size in found.sizes]
    remarks = [*_not_read(rows), *(f"At {row['runs']} {row['misleads']}." for row in rows if pd.notna(row["misleads"]))]
    return [
        Heading("Use of the GPUs"),
        Text(
            "Read on every node while the timed steps ran, medians over the runs, of energy means. Utilisation is the share of "
            "time in which any kernel ran, waiting for other ranks included; memory is the most taken on any GPU, of what it "
            "has; energy is of GPUs alone, without hosts, network and cooling."
        ),
        rows_table(COLUMNS, rows),
        *([Items(remarks)] if remarks else []),
        *_by_rank(found),
    ]


def _memory(row: Mapping[str, Any]) -> Cell:
    of = "" if pd.isna(row["gpu_mem_total_bytes"]) else f" of {giga(row['gpu_mem_total_bytes'])}"
    return number_cell(row["gpu_mem_used_peak_bytes"], lambda peak: f"{giga(peak)}{of}")


COLUMNS: dict[str, CellOf] = {
    "nodes": number_of("nodes", str),
    "GPUs": number_of("gpus", str),
    "utilisation": number_of("gpu_util_percent", "{:.0f} %".format),
    "waiting for data": number_of("data_wait_share", percent),
    "GPU memory, GB": _memory,
    "mean power per GPU, W": number_of("gpu_power_w_mean", quantity),
    "kWh per GPU and epoch": lambda row: number_cell(row["gpu_kwh_per_epoch"], lambda kwh: quantity(kwh / row["gpus"])),
    "runs": words_of("runs"),
}
"""Of a size: its rows of scaling_frame and of readings as one."""

RANK_COLUMNS: dict[str, CellOf] = {
    "rank": words_of("rank"),
    "host": words_of("host"),
    "utilisation": number_of("util_percent_mean", "{:.0f} %".format),
    "GPU memory, GB": number_of("mem_used_peak_bytes", giga),
    "mean power, W": number_of("power_w_mean", quantity),
    "energy, Wh": number_of("energy_j", lambda joules: quantity(joules / 3600)),
}
"""Of a GPU as GpuTelemetry has it, with its rank and host."""


def _not_read(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Reasons, sizes with the same together."""
    why: dict[str, list[str]] = {}
    for row in rows:
        if pd.notna(row["gpus_not_read"]):
            why.setdefault(str(row["gpus_not_read"]), []).append(row["runs"])
    yield from (f"Not read at {', '.join(sizes)}: {reason}." for reason, sizes in why.items())


def _by_rank(found: Proposal) -> list[Block]:
    """Of the size that is asked for, or else the largest: the run whose GPUs differ most, where they do."""
    size = found.choice.size if found.choice else found.sizes[-1]
    uneven = [(run, spread) for run in size.runs if (spread := _spread(run)) >= 1]
    if not uneven:
        return []
    run = max(uneven, key=lambda each: each[1])[0]
    gpus = _of_ranks(run)
    middle = pd.Series([gpu["util_percent_mean"] for gpu in gpus], dtype=float).median()
    furthest = sorted(gpus, key=lambda gpu: -abs((gpu["util_percent_mean"] or 0.0) - middle))[:SHOWN_RANKS]
    which = "its GPUs" if len(gpus) <= SHOWN_RANKS else f"the {SHOWN_RANKS} of its {len(gpus)} GPUs that are furthest off"
    window_s = run.readings.nodes[0].window_s
    time = "" if window_s is None else f", over {time_words(window_s)} of timed steps"
    text = f"The GPUs of {found.source(size)} are not used evenly; {which} in {run.name}{time}:"
    return [Text(text), rows_table(RANK_COLUMNS, sorted(furthest, key=lambda gpu: gpu["rank"]))]


def _of_ranks(run: Run) -> list[dict[str, Any]]:
    """Nodes are in the order of their first ranks, and ranks of a node number its GPUs."""
    each = run.point.layout.gpus_per_node if run.point else 0
    nodes = enumerate(run.readings.nodes)
    return [{**vars(gpu), "rank": i * each + gpu.gpu, "host": str(node.host)} for i, node in nodes for gpu in node.gpus]


def _spread(run: Run) -> float:
    """How far apart the run's GPUs are, in the largest of the limits; 1 and more is uneven."""
    gpus = run.readings.gpus
    util = [gpu.util_percent_mean for gpu in gpus if gpu.util_percent_mean is not None]
    found = [(max(util) - min(util)) / UNEVEN_PERCENT] if util else [0.0]
    for name in ("power_w_mean", "mem_used_peak_bytes"):
        known = [value for gpu in gpus if (value := getattr(gpu, name)) is not None]
        found += [(1 - min(known) / max(known)) / UNEVEN_SHARE] if known and max(known) > 0 else []
    return max(found)


ABOUT = (
    "Of the whole evaluation set, each sample once, as the median over runs; sizes that trained unlike numbers of samples "
    "are not to be ranked by it."
)


def accuracy_blocks(found: Proposal) -> list[Block]:
    """A heading and tables; nothing where no run of the series was evaluated."""
    rows = [size.row for size in found.sizes if pd.notna(size.row["accuracy"])]
    if not rows:
        return []
    gpu = unit(rows[0]["device"])
    size: dict[str, CellOf] = {f"nodes x {gpu}s": lambda row: text_cell(f"{row['nodes']} x {row['gpus_per_node']}")}
    counts = {**size, "n": number_of("eval_n", str), "accuracy": accuracy_cell, "between": accuracy_spread}
    counts["samples trained"] = trained_cell
    blocks: list[Block] = [Heading("Accuracy"), Text(ABOUT), rows_table(counts, rows, UNKNOWN)]
    targets = targets_of(found)
    if targets.empty:
        return blocks
    base = next((base for base in ("1gpu", "1node") if targets[f"speedup_{base}"].notna().any()), "1gpu")
    effort = {
        **size,
        "reached": reached_cell,
        "epochs": number_of("epochs", "{:g}".format),
        "time": number_of("train_s", time_words),
        "node hours": number_of("node_h", quantity),
        f"over one {gpu if base == '1gpu' else 'node'}": number_of(f"speedup_{base}", times),
        "throughput": number_of(f"throughput_{base}", times),
    }
    sentences = " ".join(target_sentences(targets, found.rows, {}))
    return [*blocks, Text(sentences), rows_table(effort, (row for _, row in targets.iterrows()), UNKNOWN)]


def targets_of(found: Proposal) -> pd.DataFrame:
    """What each size of the series takes to an accuracy: rows of targets_frame."""
    every = found.found.targets
    rows: pd.DataFrame = every[every["series"] == found.sizes[0].row["series"]]
    return rows


def what_changes_it(found: Proposal) -> list[Block]:
    """A sentence for each key that was varied, at the largest size at which its effect is told from chance; or nothing."""
    tested = [(axis, [panel for panel in axis.panels if panel.p is not None]) for axis in found.found.effects]
    sentences = [effect_sentence(axis, panels[-1]) for axis, panels in tested if panels]
    return [Heading("Effect of each parameter"), Items(sentences)] if sentences else []


def drawings(found: Proposal, style: Style | None = None) -> dict[str, Callable[[], Figure]]:
    """What draws the figures of the one series it is about, by name; none for a single size."""
    if len(found.sizes) < 2:
        return {}
    from hpcddp.analysis.figures.scaling import efficiency_figure, scaling_figure
    from hpcddp.analysis.figures.style import DEFAULT

    shown, runs = found.found.shown, found.found.runs
    rows, names = shown[shown["series"] == found.sizes[0].row["series"]], full_names(found.found.apart)
    return {
        "efficiency": partial(efficiency_figure, rows, names, runs, style or DEFAULT),
        "scaling": partial(scaling_figure, rows, names, runs, style=style or DEFAULT),
    }
