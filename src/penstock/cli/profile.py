"""penstock profile: what a model costs, unit by unit."""

import click
import numpy as np

from penstock.cli.screen import Screen, counted, screen_options
from penstock.cli.sources import Precision, ProfileSource, check_outputs, profile_options, refuse_unused
from penstock.profile.types import Profile
from penstock.quantities import show_bytes, show_seconds

MOST_ROWS = 30


@click.command("profile")
@click.argument("source", required=False)
@profile_options
@click.option("-o", "--output", help="Write the profile to this file.")
@screen_options
def command(
    screen: Screen,
    source: str | None,
    kinds: tuple[str, ...],
    rows: int | None,
    sequence: int | None,
    precision: Precision | None,
    output: str | None,
) -> None:
    """What a model costs, unit by unit: seconds and bytes of one micro-batch.

    SOURCE is a profile of Penstock, a PipeDream graph, a Piper file, a Hugging Face config.json, or a built-in model
    such as gpt2-xl. Without it, the built-in models and device kinds are listed.
    """
    from penstock.profile.load import save_profile

    refuse_unused(source, kind=kinds, rows=rows, sequence=sequence, precision=precision, output=output)
    check_outputs((source,), (output,))
    if source is None:
        _list(screen)
        return
    wanted = ProfileSource(source, kinds, rows, sequence, precision)
    profile = wanted.load()
    if output:
        save_profile(profile, output)
    screen.data(profile)
    for kind in profile.kinds:
        _show(screen, profile, kind)
    screen.assumptions(*profile.assumptions)
    if output:
        screen.wrote(output)
    screen.next(f'penstock plan --profile {output or wanted.text} --cluster "8 x {profile.kinds[0]} @ 100 GB/s"')


def _list(screen: Screen) -> None:
    from penstock.profile.analytic import BUILTIN_NAMES
    from penstock.profile.kinds import KINDS

    screen.data({"models": list(BUILTIN_NAMES), "kinds": list(KINDS)})
    screen.show(f"models: {', '.join(BUILTIN_NAMES)}")
    rows = [
        (kind.name, f"{kind.tensor_flops_per_s / 1e12:.0f} Tflop/s", show_bytes(kind.memory_bandwidth) + "/s",
         show_bytes(kind.memory_bytes))
        for kind in KINDS.values()
    ]  # fmt: skip
    screen.table("device kinds", ("kind", "bf16/fp16 peak", "memory bandwidth", "memory"), rows)
    screen.next("penstock profile gpt2-xl --kind A100-40 --rows 4")


def _show(screen: Screen, profile: Profile, kind: str) -> None:
    from penstock.profile.affine import fit

    costs = fit(profile, kind).at(profile.rows)
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
        f"{profile.name}: one micro-batch of {counted(profile.rows, 'row')} on {kind}",
        ("unit", "forward", "input grad", "weight grad", "cut after", "saved", "parameters"),
        rows,
    )
    if tied:
        names = ", ".join(tie.name for tie in profile.ties)
        screen.show(f"  shared parameters ({names}): {show_bytes(tied)} of these are counted more than once")
    largest = int(np.argmax(sum(columns)))
    screen.show(f"  slowest unit: {profile.units[largest].name}")
