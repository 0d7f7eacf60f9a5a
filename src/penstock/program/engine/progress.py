"""How far a lowered program runs, whatever its actions cost. The proof finds deadlocks by it.

Times do not matter: a device advances when the transfers that it waits for have begun, and a transfer begins when its
participants have issued it and the transfers before it on its links have begun. The compiled engine answers the same
question, but takes longer to load than a program of usual size takes here.
"""

import sys
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.plan.pricing import Costs
from penstock.program.dependencies import Dependencies
from penstock.program.engine.execution import execute
from penstock.program.types import Program

PLAIN_LIMIT = 200_000
"""Programs with at most this many actions (0.2 us each) do not load the compiled engine (0.3 s) for their progress."""
_KERNEL = "penstock.program.engine.engine_kernel"


class Progress(NamedTuple):
    """How far a program runs."""

    counter: npt.NDArray[np.int64]
    """The action at which each device stops; the end of its actions if it runs all of them."""
    has_begun: npt.NDArray[np.bool_]
    """For each transfer whether it begins."""


def find_progress(program: Program, dependencies: Dependencies, costs: Costs) -> Progress:
    """Find how far a program runs, by the compiled engine if it is loaded or the program is large."""
    if program.num_actions <= PLAIN_LIMIT and _KERNEL not in sys.modules:
        return find_progress_plainly(program, dependencies)
    run = execute(program, dependencies, costs, np.zeros(program.num_actions))
    return Progress(run.counter, ~np.isnan(run.begun))


def find_progress_plainly(program: Program, dependencies: Dependencies) -> Progress:
    """Find how far a program runs, without compiled code."""
    offsets, device_of, transfer_of = (
        values.tolist() for values in (program.offsets, program.device_of, dependencies.transfer_of)
    )
    followers, consumers = dependencies.next_on_links, dependencies.consumers
    follower_begin, follower_values = followers.begin.tolist(), followers.values.tolist()
    consumer_begin, consumer_values = consumers.begin.tolist(), consumers.values.tolist()
    num_waits = np.bincount(consumers.values, minlength=program.num_actions).tolist()
    num_needs = dependencies.num_needs.tolist()
    has_begun = [False] * dependencies.num_transfers
    counter = offsets[:-1]
    ready_transfers: list[int] = []
    ready_devices = list(range(len(counter)))
    while ready_devices:
        device = ready_devices.pop()
        action, stop = counter[device], offsets[device + 1]
        while action < stop:
            transfer = transfer_of[action]
            if transfer >= 0:
                num_needs[transfer] -= 1
                if not num_needs[transfer]:
                    ready_transfers.append(transfer)
            elif num_waits[action]:
                break
            action += 1
        counter[device] = action
        while ready_transfers:
            transfer = ready_transfers.pop()
            has_begun[transfer] = True
            for follower in follower_values[follower_begin[transfer] : follower_begin[transfer + 1]]:
                num_needs[follower] -= 1
                if not num_needs[follower]:
                    ready_transfers.append(follower)
            for consumer in consumer_values[consumer_begin[transfer] : consumer_begin[transfer + 1]]:
                num_waits[consumer] -= 1
                if not num_waits[consumer] and counter[device_of[consumer]] == consumer:
                    ready_devices.append(device_of[consumer])
    return Progress(np.array(counter, dtype=np.int64), np.array(has_begun, dtype=bool))
