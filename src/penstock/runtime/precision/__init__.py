"""Precisions of training: converted models, master weights, loss scaling."""

from penstock.runtime.precision.conversion import Conversion, convert_inputs, torch_type
from penstock.runtime.precision.float32_loss import loss_for
from penstock.runtime.precision.loss_scaler import LossScaler
from penstock.runtime.precision.mixed_precision import MixedPrecision

__all__ = ["Conversion", "LossScaler", "MixedPrecision", "convert_inputs", "loss_for", "torch_type"]
