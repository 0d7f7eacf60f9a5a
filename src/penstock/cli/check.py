"""penstock check: prove that a plan or program can run."""

import click
import numpy as np

from penstock.cli.saved import open_plan, saved_options
from penstock.cli.screen import Screen, printable, screen_options
from penstock.cli.sources import Precision, ProfileSource, refuse_unused
from penstock.quantities import show_bytes


@click.command("check")
@saved_options
@screen_options
def command(
    screen: Screen,
    path: str,
    source: str | None,
    cluster: str | None,
    schedule: str | None,
    force: bool,
    kinds: tuple[str, ...],
    rows: int | None,
    sequence: int | None,
    precision: Precision | None,
) -> int:
    """Prove that a plan or program can run; exit with 1 if it cannot, naming the action that breaks.

    Checked: every job exactly once; every need met; sends and receives in order on every link; no deadlock; memory
    within every device's limit.
    """
    from penstock.errors import ProofError
    from penstock.program.lowering import lower
    from penstock.program.proof import prove
    from penstock.schedules import schedule as order

    refuse_unused(source, kind=kinds, rows=rows, sequence=sequence, precision=precision)
    profile = ProfileSource(source, kinds, rows, sequence, precision) if source else None
    opened = open_plan(path, profile=profile, cluster=cluster, schedule=schedule, force=force)
    program = opened.program or order(opened.costs)
    try:
        with screen.working("proving (the very first run compiles the checker)"):
            proof = prove(program if program.is_lowered else lower(program, opened.costs), opened.costs)
    except ProofError as error:
        screen.data({"holds": False, "kind": type(error).__name__, "what": error.what, "hint": error.hint})
        if not screen.as_json:
            screen.notices.print(f"does not hold: {printable(error.what)}\n  {printable(error.hint)}")
        return 1
    screen.data(
        {
            "holds": True,
            "num_jobs": proof.num_compute,
            "num_messages": proof.num_messages,
            "peak_bytes": dict(zip(program.devices, proof.peak_bytes.tolist(), strict=True)),
        }
    )
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
        f"memory within limits: fullest is {printable(program.devices[worst])}, "
        + (
            f"peak {show_bytes(float(proof.peak_bytes[worst]))}"
            + (f", {room}" if limit < float("inf") else ", no limit known")
        ),
    )
    for note in opened.costs.notes:
        screen.warn(note)
    screen.next(f"penstock simulate {path}")
    return 0
