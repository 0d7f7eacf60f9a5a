"""penstock check: prove that a plan or program can run."""

from dataclasses import replace
from typing import Any

import click
import numpy as np

from penstock.cli.console import Console, console_options
from penstock.cli.options import PlanFile, plan_file_options
from penstock.cli.render import warn_if_old
from penstock.errors import InputError
from penstock.launch import TrainOptions, check_script
from penstock.plan import Plan
from penstock.plan.pricing import PlanRestrictions
from penstock.printable_text import escape_text
from penstock.units import show_bytes, show_count


@click.command("check")
@plan_file_options
@click.option(
    "--numerics",
    metavar="SCRIPT",
    help="Also train script.py:make_model a few steps with the plan and in a single process, and compare results.",
)
@click.option("--device", help="With --numerics: device of the ranks, as for train.")
@click.option("--any-kind", is_flag=True, help="With --numerics: accept devices of other kinds than those of the plan.")
@console_options
def command(console: Console, plan_file: PlanFile, numerics: str | None, device: str | None, any_kind: bool) -> int:
    """Prove that a plan or program can run; if it cannot, name the action that fails and exit with 1.

    The proof checks that every action occurs exactly once, every dependency is met, sends and receives are in order on
    every link, there is no deadlock even if hosts wait for their whole device anywhere, the plan meets the restrictions
    of its layers (such as batch norm over replicas), and memory stays within every device's limit. --numerics also
    checks that training gives the results of a single process. With it, --precision is the precision of training, as
    for train.
    """
    from penstock.errors import ProofError
    from penstock.program.lowering import lower
    from penstock.program.proof import prove
    from penstock.schedules import schedule as order

    precision = plan_file.recipe.precision
    if not numerics and (device is not None or any_kind):
        raise InputError("--device and --any-kind require --numerics", hint="Leave them out, or name a script.")
    if numerics:
        _refuse_with_numerics(plan_file)
        check_script(numerics)
        plan_file = replace(plan_file, recipe=plan_file.recipe.without_precision)
    bundle = plan_file.open()
    warn_if_old(console, bundle.cluster)
    program = bundle.program or order(bundle.costs)
    try:
        with console.working("proving (the very first run compiles the checker)"):
            proof = prove(program if program.is_lowered else lower(program, bundle.costs), bundle.costs)
    except ProofError as error:
        console.data({"holds": False, "kind": type(error).__name__, "what": error.what, "hint": error.hint})
        if not console.as_json:
            console.stderr.print(f"proof failed: {escape_text(error.what)}\n  {escape_text(error.hint)}")
        return 1
    data: dict[str, Any] = {
        "holds": True,
        "num_jobs": proof.num_compute,
        "num_messages": proof.num_messages,
        "num_restrictions": bundle.costs.restrictions.num_checked,
        "synced_stages": sorted(bundle.costs.restrictions.synced),
        "peak_bytes": dict(zip(program.devices, proof.peak_bytes.tolist(), strict=True)),
    }
    is_limited = bool(np.isfinite(bundle.costs.memory_limit).any())
    fullness = proof.peak_bytes / np.maximum(bundle.costs.memory_limit, 1.0) if is_limited else proof.peak_bytes
    worst = int(fullness.argmax())
    limit = float(bundle.costs.memory_limit[worst])
    room = f"{show_bytes(limit - float(proof.peak_bytes[worst]))} left of {show_bytes(limit)}"
    console.show(
        f"every action exactly once: {proof.num_compute:,} compute actions",
        "every dependency met by an earlier action or a receive",
        f"sends and receives in order on every link: {proof.num_messages:,} messages",
        "no deadlock, even under device-wide waits or with one hardware queue",
        *_describe_restrictions(bundle.costs.restrictions, bundle.plan),
        f"memory within limits: the fullest device is {escape_text(program.devices[worst])}, "
        + (
            f"peak {show_bytes(float(proof.peak_bytes[worst]))}"
            + (f", {room}" if limit < float("inf") else ", limit unknown")
        ),
    )
    for note in bundle.costs.notes:
        console.warn(note)
    if numerics:
        from penstock.launch import check_numerics

        data["holds"], data["numerics"] = check_numerics(
            console,
            TrainOptions(
                numerics,
                plan_file.path,
                plan_file.source,
                plan_file.cluster,
                precision=precision,
                device=device,
                any_kind=any_kind,
            ),
        )
    console.data(data)
    console.next(f"penstock simulate {plan_file.path}")
    return 0 if data["holds"] else 1


def _describe_restrictions(restrictions: PlanRestrictions, plan: Plan) -> list[str]:
    """Describe the part of the proof about restrictions of the layers."""
    if not restrictions.num_checked:
        return []
    lines = [f"training accepts the plan: {show_count(restrictions.num_checked, 'restriction')} of its layers met"]
    for stage, layer in sorted(restrictions.synced.items()):
        count = plan.stages[stage].num_replicas
        lines.append(
            f"replica syncs of stage {stage} without deadlock: {count} replicas, first layer {escape_text(layer)}"
        )
    return lines


def _refuse_with_numerics(plan_file: PlanFile) -> None:
    """Raise an error for options that would change the plan: training uses the file unchanged."""
    options = {
        "kind": plan_file.kinds,
        "micro_batch_size": plan_file.micro_batch_size,
        "sequence": plan_file.sequence,
        **plan_file.recipe.without_precision.given,
        "force": plan_file.force,
        "schedule": plan_file.schedule,
    }
    for name, value in options.items():
        if value not in (None, (), False):
            raise InputError(
                f"--{name.replace('_', '-')} cannot be used with --numerics", hint="Plan with it, then check the plan."
            )
