"""penstock check: prove that a plan or program can run."""

from typing import Any

import click
import numpy as np

from penstock.cli.console import Screen, screen_options
from penstock.cli.options import Saved, saved_options
from penstock.cli.render import warn_if_old
from penstock.errors import InputError
from penstock.launch import Training, check_script
from penstock.report import shown_name
from penstock.units import show_bytes


@click.command("check")
@saved_options
@click.option(
    "--numerics",
    metavar="SCRIPT",
    help="Also train some steps of script.py:make_model by the plan and in one process, and compare every number.",
)
@screen_options
def command(screen: Screen, saved: Saved, numerics: str | None) -> int:
    """Prove that a plan or program can run; exit with 1 if it cannot, naming the action that breaks.

    Checked: every job exactly once; every need met; sends and receives in order on every link; no deadlock; memory
    within every device's limit. With --numerics also whether it trains to the numbers of one process.
    """
    from penstock.errors import ProofError
    from penstock.program.lowering import lower
    from penstock.program.proof import prove
    from penstock.schedules import schedule as order

    if numerics:
        _refuse_with_numerics(saved)
        check_script(numerics)
    opened = saved.open()
    warn_if_old(screen, opened.cluster)
    program = opened.program or order(opened.costs)
    try:
        with screen.working("proving (the very first run compiles the checker)"):
            proof = prove(program if program.is_lowered else lower(program, opened.costs), opened.costs)
    except ProofError as error:
        screen.data({"holds": False, "kind": type(error).__name__, "what": error.what, "hint": error.hint})
        if not screen.as_json:
            screen.notices.print(f"does not hold: {shown_name(error.what)}\n  {shown_name(error.hint)}")
        return 1
    data: dict[str, Any] = {
        "holds": True,
        "num_jobs": proof.num_compute,
        "num_messages": proof.num_messages,
        "peak_bytes": dict(zip(program.devices, proof.peak_bytes.tolist(), strict=True)),
    }
    is_limited = bool(np.isfinite(opened.costs.memory_limit).any())
    fullness = proof.peak_bytes / np.maximum(opened.costs.memory_limit, 1.0) if is_limited else proof.peak_bytes
    worst = int(fullness.argmax())
    limit = float(opened.costs.memory_limit[worst])
    room = f"{show_bytes(limit - float(proof.peak_bytes[worst]))} left of {show_bytes(limit)}"
    screen.show(
        f"every job exactly once: {proof.num_compute:,} jobs",
        "every need met by an earlier action or a receive",
        f"sends and receives in order on every link: {proof.num_messages:,} messages",
        "no deadlock: runs to its end",
        f"memory within limits: fullest is {shown_name(program.devices[worst])}, "
        + (
            f"peak {show_bytes(float(proof.peak_bytes[worst]))}"
            + (f", {room}" if limit < float("inf") else ", no limit known")
        ),
    )
    for note in opened.costs.notes:
        screen.warn(note)
    if numerics:
        from penstock.launch import check_numerics

        data["holds"], data["numerics"] = check_numerics(
            screen, Training(numerics, saved.path, saved.source, saved.cluster)
        )
    screen.data(data)
    screen.next(f"penstock simulate {saved.path}")
    return 0 if data["holds"] else 1


def _refuse_with_numerics(saved: Saved) -> None:
    """Training takes the plan as it is."""
    options = {
        "kind": saved.kinds,
        "micro_batch_size": saved.micro_batch_size,
        "sequence": saved.sequence,
        "precision": saved.precision,
        "force": saved.force,
        "schedule": saved.schedule,
    }
    for name, value in options.items():
        if value not in (None, (), False):
            raise InputError(f"--{name} does not go with --numerics", hint="Plan with it, then check that plan.")
