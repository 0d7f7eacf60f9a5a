"""Lowering: adds sends, receives, reductions and optimizer steps to a compute program."""

from penstock.program.lowering.lowering import lower
from penstock.program.lowering.message_order import holds_sends, order_by_ends, order_messages
from penstock.program.lowering.message_places import place_messages

__all__ = ["holds_sends", "lower", "order_by_ends", "order_messages", "place_messages"]
