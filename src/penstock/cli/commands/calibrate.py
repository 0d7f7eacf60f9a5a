"""penstock calibrate: a profile that predicts what was measured."""

import click

from penstock.bundle import open_plan
from penstock.cli.console import Console, console_options
from penstock.cli.options import check_outputs
from penstock.errors import InputError
from penstock.units import parse_seconds, show_seconds


@click.command("calibrate")
@click.argument("measured", nargs=-1, required=True)
@click.option("-o", "--output", required=True, help="Write the calibrated profile to this file.")
@click.option("--force", is_flag=True, help="Accept a profile or cluster that differs from a plan's.")
@console_options
def command(console: Console, measured: tuple[str, ...], output: str, force: bool) -> None:
    """Adapt a profile to measured iterations, so that predictions agree with them.

    MEASURED is a plan file and the seconds of an iteration, such as plan.json=1.32s; several plans of one profile may
    be given. One measurement supports one factor, of the time of all layers; with three or more, a time for every byte
    sent is fitted too if it predicts left-out measurements better. The profile states what it was fitted to.
    """
    from penstock.calibration import Observation, calibrate
    from penstock.profile import save_profile

    pairs = [_parse(item) for item in measured]
    check_outputs([path for path, _ in pairs], (output,))
    bundles = [open_plan(path, profile=None, cluster=None, schedule=None, force=force) for path, _ in pairs]
    profile = bundles[0].profile
    for (path, _), bundle in zip(pairs, bundles, strict=True):
        if bundle.profile.digest != profile.digest:
            raise InputError(
                f"this plan was made for another profile than {pairs[0][0]}", where=path, hint="Calibrate it alone."
            )
    observations = [
        Observation(bundle.plan, bundle.cluster, seconds) for (_, seconds), bundle in zip(pairs, bundles, strict=True)
    ]
    with console.working("simulating (the very first run compiles the simulator)"):
        found = calibrate(profile, observations)
    save_profile(found.profile, output)
    console.data(
        {
            "factors": [
                {"name": factor.name, "value": factor.value, "error": factor.error} for factor in found.factors
            ],
            "errors_before": found.before,
            "errors_after": found.after,
            "errors_left_out": found.left_out,
        }
    )
    for factor in found.factors:
        sure = "" if factor.error is None else f" +- {factor.error:.2g}"
        console.show(f"{factor.name}: {factor.value:.4g}{sure}")
    rows = []
    for index, (path, seconds) in enumerate(pairs):
        left_out = f"{found.left_out[index]:+.1%}" if found.left_out else "-"
        cells = f"{found.before[index]:+.1%}", f"{found.after[index]:+.1%}", left_out
        rows.append((path, show_seconds(seconds), *cells))
    console.table("error of the prediction", ("plan", "measured", "before", "after", "fitted without it"), rows)
    if len(pairs) == 1:
        console.show("  One measurement: the factor is exact for it, and its error for other plans is unknown.")
    console.wrote(output)
    console.next(f"penstock simulate {pairs[0][0]} --profile {output} --force")


def _parse(item: str) -> tuple[str, float]:
    path, equals, text = item.rpartition("=")
    if not equals or not path:
        raise InputError(
            f"{item[:80]!r} names no time", where="MEASURED", hint="Write a plan and its iteration: plan.json=1.32s."
        )
    return path, parse_seconds(text, where=item[:80])
