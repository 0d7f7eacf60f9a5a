"""penstock profile: the time and memory of a model, layer by layer."""

import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import click
import numpy as np

from penstock.bundle import ProfileSource
from penstock.cli.console import Console, console_options
from penstock.cli.options import RecipeOptions, check_outputs, computed_options, refuse_unused
from penstock.cli.workflows import MeasureOptions, measure_script
from penstock.errors import InputError
from penstock.launch import DEFAULT_FUNCTION, check_script, is_script, script_function, script_path
from penstock.profile import Profile
from penstock.units import show_bytes, show_count, show_seconds

MAX_ROWS = 30


class _MicroBatchSizes(click.ParamType[tuple[int, ...]]):
    """Comma-separated micro-batch sizes."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers."""
        if isinstance(value, tuple):
            return value
        return tuple(click.INT.convert(word, param, ctx) for word in value.split(","))


@click.command("profile")
@click.argument("source", required=False)
@click.option(
    "-b",
    "--micro-batch-size",
    type=_MicroBatchSizes(),
    help="Rows per micro-batch. For a measured model: one or several sizes, such as 2,4.",
)
@computed_options
@click.option("--blocks", help="For a measured model: names of its blocks, such as embed,layers.0,layers.1,head.")
@click.option(
    "--seconds", type=click.FloatRange(min=0), help="For a measured model: time limit in seconds [default: 30]."
)
@click.option("--threads", type=click.IntRange(min=1), help="For a measured model: number of torch CPU threads.")
@click.option(
    "--device", help="For a measured model: move it to this device: cpu, cuda, auto, ... [default: that of the model]."
)
@click.option(
    "--busy-processes",
    type=click.IntRange(min=0),
    metavar="N",
    help="For a measured model: run the same measurement in N other processes at the same time.",
)
@click.option(
    "--remeasure-overheads",
    is_flag=True,
    default=None,
    help="For a measured model: measure the runtime's overhead even if it is known for this machine.",
)
@click.option(
    "-o",
    "--output",
    help="Write the profile to this file [default for a measured model: MODEL.profile.json in the current directory, "
    "unless --json is set].",
)
@console_options
def command(
    console: Console,
    source: str | None,
    kinds: tuple[str, ...],
    micro_batch_size: tuple[int, ...] | None,
    sequence: int | None,
    recipe: RecipeOptions,
    blocks: str | None,
    seconds: float | None,
    threads: int | None,
    device: str | None,
    busy_processes: int | None,
    remeasure_overheads: bool | None,
    output: str | None,
) -> None:
    """Show the time and memory of a model, layer by layer, for one micro-batch.

    SOURCE is a profile of Penstock, a PipeDream graph, a Piper file, a Hugging Face config.json, a built-in model such
    as gpt2-xl, or script.py:make_model: a function that returns (model, inputs, loss) or (model, inputs, loss,
    targets). Such a model is measured: every block, then, once for each machine, the runtime's overhead per action and
    message. The result is written to a file.
    Without SOURCE, the built-in models, model types and device kinds are listed.
    """
    from penstock.profile import save_profile

    computing = {"kind": kinds, "sequence": sequence, **recipe.without_precision.given}
    measuring = {
        "blocks": blocks,
        "seconds": seconds,
        "threads": threads,
        "device": device,
        "busy_processes": busy_processes,
        "remeasure_overheads": remeasure_overheads,
    }
    refuse_unused(
        source, **computing, **measuring, precision=recipe.precision, micro_batch_size=micro_batch_size, output=output
    )
    if source is None:
        _list(console)
        return
    measured = is_script(source)
    if measured and output is None and not console.as_json:
        check_script(source)
        output = _default_output(source)
    check_outputs((script_path(source) if measured else source,), (output,))
    if measured:
        _refuse("only valid for computed profiles, not for measured models", computing)
        options = MeasureOptions(
            micro_batch_size or (),
            blocks,
            seconds,
            threads,
            busy_processes or 0,
            bool(remeasure_overheads),
            device,
            recipe.precision,
        )
        profile = measure_script(console, source, options)
        reusable = output or ""
    else:
        _refuse("only valid for measured models, such as script.py:make_model", measuring)
        if micro_batch_size is not None and len(micro_batch_size) > 1:
            raise InputError("--micro-batch-size: only measured models accept several sizes", hint="Use one size.")
        profile_source = ProfileSource(
            source, kinds, micro_batch_size[0] if micro_batch_size else None, sequence, recipe.recipe
        )
        profile = profile_source.load()
        reusable = output or profile_source.text
    if output:
        save_profile(profile, output)
    console.data(profile)
    for kind in profile.kinds:
        _show(console, profile, kind)
    if profile.parameter_counts:
        counts = profile.parameter_counts
        console.show(f"  parameters: {counts.total:,} in total, {counts.active:,} active for each token")
    console.assumptions(*profile.assumptions)
    if output:
        console.wrote(output)
    if reusable:  # not with --json, which has no such line
        kind = profile.kinds[0]
        shape = f"2 x {kind} @ 2 GB/s" if kind.startswith("cpu") else f"8 x {kind} @ 100 GB/s"
        console.next(f'penstock plan --profile {reusable} --cluster "{shape}"')


def _default_output(source: str) -> str:
    """A file in the current directory that does not exist yet, named after the script and its function."""
    if not os.access(".", os.W_OK):
        raise InputError("the profile cannot be written to the current directory", hint="Name a file with -o.")
    function = script_function(source)
    name = Path(script_path(source)).stem
    if function not in ("", DEFAULT_FUNCTION):
        name = f"{name}-{function}"
    names = (f"{name}{'' if number == 1 else f'-{number}'}.profile.json" for number in count(1))
    return next(path for path in names if not Path(path).exists())


def _refuse(why: str, options: Mapping[str, object]) -> None:
    names = [f"--{name.replace('_', '-')}" for name, value in options.items() if value not in (None, ())]
    if names:
        raise InputError(f"{', '.join(names)}: {why}", hint="Remove these options.")


def _list(console: Console) -> None:
    from penstock.profile import KINDS
    from penstock.profile.analytic import ARCHITECTURES, BUILTIN_NAMES

    console.data({"models": list(BUILTIN_NAMES), "model_types": list(ARCHITECTURES), "kinds": list(KINDS)})
    console.show(f"models: {', '.join(BUILTIN_NAMES)}")
    console.show(f"model types of a config.json: {', '.join(ARCHITECTURES)}")
    rows = [
        (kind.name, f"{kind.tensor_flops_per_s / 1e12:.0f} Tflop/s", show_bytes(kind.memory_bandwidth) + "/s",
         show_bytes(kind.memory_bytes))
        for kind in KINDS.values()
    ]  # fmt: skip
    console.table("device kinds", ("kind", "bf16/fp16 peak", "memory bandwidth", "memory"), rows)
    console.next("penstock profile gpt2-xl --kind A100-40 --micro-batch-size 4")


def _show(console: Console, profile: Profile, kind: str) -> None:
    from penstock.profile import fit

    costs = fit(profile, kind).at(profile.micro_batch_size)
    columns = (costs.forward_s, costs.input_grad_s, costs.weight_grad_s)
    sizes = (costs.cut_bytes, costs.saved_bytes, costs.parameter_bytes)

    def row(name: str, picked: slice, cut: str) -> tuple[str, ...]:
        seconds = [show_seconds(float(values[picked].sum())) for values in columns]
        saved, parameters = (show_bytes(float(values[picked].sum())) for values in sizes[1:])
        return (name, *seconds, cut, saved, parameters)

    num = profile.num_units
    shown = range(num)
    left_out = 0
    if num > MAX_ROWS and not console.verbose:
        shown = [*range(MAX_ROWS // 2), *range(num - MAX_ROWS // 2, num)]  # type: ignore[assignment]
        left_out = num - MAX_ROWS
    rows = []
    for index in shown:
        if left_out and index == num - MAX_ROWS // 2:
            rows.append((f"... {left_out} more with -v ...", *[""] * 6))
        rows.append(row(profile.units[index].name, slice(index, index + 1), show_bytes(float(sizes[0][index]))))
    tied = sum((len(tie.units) - 1) * tie.parameter_bytes for tie in profile.ties)
    rows.append(row(f"all {num} layers", slice(None), ""))
    console.table(
        f"{profile.name}: one micro-batch of {show_count(profile.micro_batch_size, 'row')} on {kind}",
        ("layer", "forward", "input grad", "weight grad", "cut after", "saved", "parameters"),
        rows,
    )
    if tied:
        names = ", ".join(tie.name for tie in profile.ties)
        console.show(f"  shared parameters ({names}): {show_bytes(tied)} are counted more than once")
    largest = int(np.argmax(sum(columns)))
    console.show(f"  slowest layer: {profile.units[largest].name}")
