"""`lower`: a compute program becomes one that can be proved, simulated and run."""

from penstock.plan.pricing import Costs
from penstock.program.lowering.message_order import order_messages
from penstock.program.lowering.message_places import place_messages
from penstock.program.types import Program


def lower(program: Program, costs: Costs) -> Program:
    """Add communication and optimizer steps to a compute program.

    `place_messages` adds them as early as buffers permit, and `order_messages` moves them into one order over all
    devices, in which no device can wait for another in a cycle, whatever it waits for itself.

    For an engine that blocks at its messages (`Costs.messages`), `place_messages` places them as the engine does, and
    they stay there.

    Args:
        program: A compute program. Every pass must occur once, which `prove` checks.
        costs: The priced plan of the program.

    Returns:
        The lowered program.
    """
    placed = place_messages(program, costs)
    return order_messages(placed, costs) if costs.messages.is_overlapped else placed
