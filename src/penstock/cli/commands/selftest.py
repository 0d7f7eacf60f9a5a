"""penstock selftest: check that Penstock works on this machine."""

from importlib.util import find_spec

import click

from penstock.cli.console import Console, console_options
from penstock.cli.options import check_outputs
from penstock.errors import InputError
from penstock.units import show_count, show_seconds

MAX_RANKS = 4


@click.command("selftest")
@click.option("--device", help="Device type: cpu, cuda, xpu, ... [default: an accelerator if there is one].")
@click.option(
    "--ranks",
    type=click.IntRange(2, MAX_RANKS),
    help=f"Number of ranks [default: 2 on a CPU, else one for each device, at most {MAX_RANKS}].",
)
@click.option("-o", "--output", default="penstock-selftest.json", show_default=True, help="Write the results here.")
@console_options
def command(console: Console, device: str | None, ranks: int | None, output: str) -> int:
    """Check that Penstock works on this machine, in a minute or two.

    A small model is profiled, links are probed, and six plans (with several stages a device, V-shaped, with two sets
    of cuts, replicated, auto's) are trained and compared with a single process; checkpoints are saved and resumed. The
    file has all results, versions, devices and settings, for an issue. It does not name the host or the user.
    """
    if find_spec("torch") is None:
        raise InputError("the self-test needs torch", hint="pip install 'penstock[run]'")
    check_outputs([], [output])
    from penstock.launch import selftest

    device_type, num_devices = selftest.find_devices(device)
    if num_devices < (ranks or 2):
        what = f"this host has {show_count(num_devices, f'{device_type} device')}, and {ranks or 2} are needed"
        raise InputError(what, where="--device", hint="Use --device cpu.")
    num_ranks = ranks or min(num_devices, MAX_RANKS)
    checks = selftest.list_checks(num_ranks, device_type)

    def show(result: selftest.CheckResult) -> None:
        took = show_seconds(result.seconds) if result.seconds else ""
        console.show(f"{result.verdict:8} {took:>8}  {result.name}{f': {result.reason}' if result.reason else ''}")
        if result.verdict is selftest.Verdict.FAILED:
            console.show(f"    {result.command}", *(f"    {line}" for line in result.errors.splitlines()[-6:]))

    console.show(f"{num_ranks} ranks on {device_type}, {len(checks)} checks:")
    results = selftest.run_selftest(checks, show)
    found = selftest.Selftest(
        environment=selftest.describe_machine(device_type), device=device_type, num_ranks=num_ranks, checks=results
    )
    selftest.save_selftest(found, output)
    console.wrote(output)
    console.data(found)
    if found.has_failed:
        console.show("Some checks failed. Attach the file to an issue.")
    return 1 if found.has_failed else 0
