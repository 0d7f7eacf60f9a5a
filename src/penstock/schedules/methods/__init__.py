"""One file for each schedule."""

from penstock.schedules.methods.auto import SPLIT, auto, auto_fused, best_of, best_order, rooms
from penstock.schedules.methods.gpipe import gpipe
from penstock.schedules.methods.interleaved import interleaved
from penstock.schedules.methods.one_f_one_b import one_f_one_b
from penstock.schedules.methods.pe import pe
from penstock.schedules.methods.v_half import v_half
from penstock.schedules.methods.v_min import v_min
from penstock.schedules.methods.zb_h1 import zb_h1
from penstock.schedules.methods.zb_v import zb_v

__all__ = [
    "SPLIT",
    "auto",
    "auto_fused",
    "best_of",
    "best_order",
    "gpipe",
    "interleaved",
    "one_f_one_b",
    "pe",
    "rooms",
    "v_half",
    "v_min",
    "zb_h1",
    "zb_v",
]
