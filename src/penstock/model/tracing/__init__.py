"""One recorded run of a model's forward: values, events, and the dataflow between blocks."""

from penstock.model.tracing.dataflow import Flow, find_flow, local_values
from penstock.model.tracing.intercept import intercepted, stepped_aside
from penstock.model.tracing.placeholder import Placeholder
from penstock.model.tracing.record import COARSER, Event, Record, Slot, State, Value, require_same_course
from penstock.model.tracing.recorder import Run, function_name, run_and_record

__all__ = [
    "COARSER",
    "Event",
    "Flow",
    "Placeholder",
    "Record",
    "Run",
    "Slot",
    "State",
    "Value",
    "find_flow",
    "function_name",
    "intercepted",
    "local_values",
    "require_same_course",
    "run_and_record",
    "stepped_aside",
]
