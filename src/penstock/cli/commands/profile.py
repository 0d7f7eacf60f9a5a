"""penstock profile: what a model costs, unit by unit."""

from collections.abc import Mapping
from typing import Any

import click
import numpy as np

from penstock.bundle import Precision, ProfileSource
from penstock.cli.console import Screen, screen_options
from penstock.cli.options import check_outputs, computed_options, refuse_unused
from penstock.cli.render import MeasureOptions, measure_script
from penstock.errors import InputError
from penstock.launch import is_script, script_path
from penstock.profile import Profile
from penstock.units import counted, show_bytes, show_seconds

MOST_ROWS = 30


class _Rows(click.ParamType[tuple[int, ...]]):
    """Numbers of rows, with commas between them."""

    name = "rows"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers."""
        if isinstance(value, tuple):
            return value
        return tuple(click.INT.convert(word, param, ctx) for word in value.split(","))


@click.command("profile")
@click.argument("source", required=False)
@click.option(
    "-b", "--micro-batch-size", type=_Rows(), help="Rows of a micro-batch. Measuring a model: several, such as 2,4."
)
@computed_options
@click.option("--blocks", help="Measuring a model: the names of its blocks, such as embed,layers.0,layers.1,head.")
@click.option(
    "--seconds", type=click.FloatRange(min=0), help="Measuring a model: for at most so long; 30 if not given."
)
@click.option("--threads", type=click.IntRange(min=1), help="Measuring a model: the threads that torch uses on a CPU.")
@click.option(
    "--beside",
    type=click.IntRange(min=0),
    help="Measuring a model: beside so many processes that do the same, as the ranks of one computer will.",
)
@click.option("-o", "--output", help="Write the profile to this file.")
@screen_options
def command(
    screen: Screen,
    source: str | None,
    kinds: tuple[str, ...],
    micro_batch_size: tuple[int, ...] | None,
    sequence: int | None,
    precision: Precision | None,
    blocks: str | None,
    seconds: float | None,
    threads: int | None,
    beside: int | None,
    output: str | None,
) -> None:
    """What a model costs, unit by unit: seconds and bytes of one micro-batch.

    SOURCE is a profile of Penstock, a PipeDream graph, a Piper file, a Hugging Face config.json, a built-in model such
    as gpt2-xl, or script.py:make_model: a function of yours that returns (model, inputs, loss) or (model, inputs, loss,
    targets), which is measured here: every block, then what the runtime spends around jobs and messages.
    Without SOURCE, the built-in models and device kinds are listed.
    """
    from penstock.profile import save_profile

    computing = {"kind": kinds, "sequence": sequence, "precision": precision}
    measuring = {"blocks": blocks, "seconds": seconds, "threads": threads, "beside": beside}
    refuse_unused(source, **computing, **measuring, micro_batch_size=micro_batch_size, output=output)
    if source is None:
        _list(screen)
        return
    measured = is_script(source)
    check_outputs((script_path(source) if measured else source,), (output,))
    if measured:
        _refuse("are for computed profiles; a model is measured where it is", computing)
        profile = measure_script(
            screen, source, MeasureOptions(micro_batch_size or (), blocks, seconds, threads, beside or 0)
        )
        again = output or ""
    else:
        _refuse("are for measuring a model, such as script.py:make_model", measuring)
        if micro_batch_size is not None and len(micro_batch_size) > 1:
            raise InputError("--micro-batch-size: one number here; several are for measuring a model")
        wanted = ProfileSource(source, kinds, micro_batch_size[0] if micro_batch_size else None, sequence, precision)
        profile = wanted.load()
        again = output or wanted.text
    if output:
        save_profile(profile, output)
    screen.data(profile)
    for kind in profile.kinds:
        _show(screen, profile, kind)
    screen.assumptions(*profile.assumptions)
    if output:
        screen.wrote(output)
    if again:
        kind = profile.kinds[0]
        shape = f"2 x {kind} @ 2 GB/s" if kind.startswith("cpu") else f"8 x {kind} @ 100 GB/s"
        screen.next(f'penstock plan --profile {again} --cluster "{shape}"')
    else:
        screen.next(f"penstock profile {source} -o profile.json")


def _refuse(why: str, options: Mapping[str, object]) -> None:
    given = [f"--{name}" for name, value in options.items() if value not in (None, ())]
    if given:
        raise InputError(f"{', '.join(given)}: such options {why}", hint="Leave them out.")


def _list(screen: Screen) -> None:
    from penstock.profile import KINDS
    from penstock.profile.analytic import BUILTIN_NAMES

    screen.data({"models": list(BUILTIN_NAMES), "kinds": list(KINDS)})
    screen.show(f"models: {', '.join(BUILTIN_NAMES)}")
    rows = [
        (kind.name, f"{kind.tensor_flops_per_s / 1e12:.0f} Tflop/s", show_bytes(kind.memory_bandwidth) + "/s",
         show_bytes(kind.memory_bytes))
        for kind in KINDS.values()
    ]  # fmt: skip
    screen.table("device kinds", ("kind", "bf16/fp16 peak", "memory bandwidth", "memory"), rows)
    screen.next("penstock profile gpt2-xl --kind A100-40 --micro-batch-size 4")


def _show(screen: Screen, profile: Profile, kind: str) -> None:
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
    if num > MOST_ROWS and not screen.verbose:
        shown = [*range(MOST_ROWS // 2), *range(num - MOST_ROWS // 2, num)]  # type: ignore[assignment]
        left_out = num - MOST_ROWS
    rows = []
    for place in shown:
        if left_out and place == num - MOST_ROWS // 2:
            rows.append((f"... {left_out} more (-v shows them) ...", *[""] * 6))
        rows.append(row(profile.units[place].name, slice(place, place + 1), show_bytes(float(sizes[0][place]))))
    tied = sum((len(tie.units) - 1) * tie.parameter_bytes for tie in profile.ties)
    rows.append(row(f"all {num} units", slice(None), ""))
    screen.table(
        f"{profile.name}: one micro-batch of {counted(profile.micro_batch_size, 'row')} on {kind}",
        ("unit", "forward", "input grad", "weight grad", "cut after", "saved", "parameters"),
        rows,
    )
    if tied:
        names = ", ".join(tie.name for tie in profile.ties)
        screen.show(f"  shared parameters ({names}): {show_bytes(tied)} of these are counted more than once")
    largest = int(np.argmax(sum(columns)))
    screen.show(f"  slowest unit: {profile.units[largest].name}")
