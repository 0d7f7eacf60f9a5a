"""The executor: runs a rank's actions in order."""

from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.executor import Executor
from penstock.runtime.executor.forward_only import Evaluator, eval_mode, forwards_of
from penstock.runtime.executor.grad_clip import Clipping, clip
from penstock.runtime.executor.grad_reduce import Reduction
from penstock.runtime.executor.loss import Losses
from penstock.runtime.executor.recorder import gather_timeline
from penstock.runtime.executor.routing import Addresses
from penstock.runtime.executor.weight_return import Returns

__all__ = [
    "Addresses",
    "Clipping",
    "Evaluator",
    "Executor",
    "Iteration",
    "Losses",
    "Reduction",
    "Returns",
    "clip",
    "eval_mode",
    "forwards_of",
    "gather_timeline",
]
