"""One block of a model's forward, run by the model's own code or by repeating recorded calls."""

from penstock.model.block_forward.input_form import InputForm
from penstock.model.block_forward.partial_forward import PartialForward
from penstock.model.block_forward.traces import ForwardTraces, Trace, training_only, trial_run

__all__ = ["ForwardTraces", "InputForm", "PartialForward", "Trace", "training_only", "trial_run"]
