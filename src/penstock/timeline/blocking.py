"""Waits of devices at messages of engines that block, told from waits for a tensor that the next action needs."""

from typing import Literal

from penstock.program import Kind, Program


def blocked_at(program: Program, waiting: int, cause: int) -> Literal["receive", "rendezvous"] | None:
    """How a device is blocked before a compute action.

    Args:
        program: A lowered program.
        waiting: The compute action.
        cause: The transfer that it waited for (`Timeline.cause`).

    Returns:
        "rendezvous": the device waits for its own send to arrive. "receive": it waits in a receive for a message that
        another action needs. None: the action needs what the transfer brings.
    """
    sent, then = program.action(cause), program.action(waiting)
    if not sent.kind.is_send or sent.kind is Kind.SEND_P:
        return None
    if program.device_of[cause] == program.device_of[waiting]:
        return "rendezvous"
    needs_it = (then.kind is Kind.F) == (sent.kind is Kind.SEND_F) and then.microbatch == sent.microbatch
    return None if needs_it else "receive"
