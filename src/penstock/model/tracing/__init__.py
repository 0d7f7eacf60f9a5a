"""Recording of a model's forward: values, events, and the dataflow between blocks."""

from penstock.model.tracing.abstraction import Abstraction
from penstock.model.tracing.block_calls import BlockCall, have_same_results
from penstock.model.tracing.captured_outputs import Captured, append_captured, list_sizes, with_captured
from penstock.model.tracing.cut_points import choose_cuts
from penstock.model.tracing.dataflow import Dataflow, find_flow, local_values
from penstock.model.tracing.function_names import function_name, is_metadata_query
from penstock.model.tracing.intercept import intercept_calls, intercept_vmap, suspend_all_modes, suspend_mode
from penstock.model.tracing.placeholder import Placeholder
from penstock.model.tracing.record import (
    COARSER_BLOCKS,
    Autocast,
    Call,
    Event,
    Items,
    Record,
    Slot,
    State,
    Value,
    autocast_devices,
    read_autocast,
)
from penstock.model.tracing.recorder import Run, run_and_record
from penstock.model.tracing.slice_bounds import with_numbers

__all__ = [
    "COARSER_BLOCKS",
    "Abstraction",
    "Autocast",
    "BlockCall",
    "Call",
    "Captured",
    "Dataflow",
    "Event",
    "Items",
    "Placeholder",
    "Record",
    "Run",
    "Slot",
    "State",
    "Value",
    "append_captured",
    "autocast_devices",
    "choose_cuts",
    "find_flow",
    "function_name",
    "have_same_results",
    "intercept_calls",
    "intercept_vmap",
    "is_metadata_query",
    "list_sizes",
    "local_values",
    "read_autocast",
    "run_and_record",
    "suspend_all_modes",
    "suspend_mode",
    "with_captured",
    "with_numbers",
]
