"""Building blocks of schedules: virtual clocks, weight-gradient filling, micro-batch order."""

from penstock.schedules.ordering.clock import order_by_clock, with_split
from penstock.schedules.ordering.fused_backward import join_first
from penstock.schedules.ordering.microbatch_order import in_turn
from penstock.schedules.ordering.v_block import VBlock
from penstock.schedules.ordering.weight_filling import fill_weights

__all__ = ["VBlock", "fill_weights", "in_turn", "join_first", "order_by_clock", "with_split"]
