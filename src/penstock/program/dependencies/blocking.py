"""Waits of devices for their own messages, where the engine that a plan is for blocks (`MessageModel`)."""

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.plan import MessageModel
from penstock.program.actions import is_compute
from penstock.program.types import Program


def find_eager(messages: MessageModel, num_bytes: Floats) -> Bools:
    """Which messages are sent without waiting for the receiver."""
    return np.asarray((num_bytes <= messages.eager_bytes) & (messages.eager_bytes > 0))


def find_blocked(
    program: Program, messages: MessageModel, send: Ints, receive: Ints, num_bytes: Floats
) -> tuple[Ints, Ints]:
    """Messages, and the actions that wait until these have arrived.

    A device that blocks goes on with the next action, or with the next compute action if its messages between two
    passes start together.

    Args:
        program: A lowered program.
        messages: How the engine moves messages.
        send: The sends.
        receive: Their receives.
        num_bytes: Their bytes.

    Returns:
        The numbers of the messages, and for each the action that waits.
    """
    if messages.is_overlapped:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    number = np.arange(len(send))
    waits_for_send = (
        ~find_eager(messages, num_bytes) if messages.send == "rendezvous" else np.zeros(len(send), dtype=np.bool_)
    )
    owner = np.concatenate([number, number[waits_for_send]])
    issued_at = np.concatenate([receive, send[waits_for_send]])
    following = issued_at + 1
    num = program.num_actions
    if messages.together:
        places = np.where(is_compute(program.kind), np.arange(num), num)
        following = np.append(np.minimum.accumulate(places[::-1])[::-1], num)[following]
    same = following < program.offsets[1:][program.device_of[issued_at]]
    return owner[same], following[same]
