"""The executor: runs a rank's actions in order."""

from penstock.runtime.executor.any_rank import any_rank
from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.executor import Executor, ExecutorParts
from penstock.runtime.executor.forward_only import Evaluator, select_forwards
from penstock.runtime.executor.grad_clip import GradNorm, clip_grads
from penstock.runtime.executor.grad_reduce import GroupGradReducer
from penstock.runtime.executor.loss import LossExchange, loss_tree, part_tree
from penstock.runtime.executor.messages import Routing
from penstock.runtime.executor.protocols import Span
from penstock.runtime.executor.recorder import gather_timeline
from penstock.runtime.executor.weight_return import WeightReturn

__all__ = [
    "Evaluator",
    "Executor",
    "ExecutorParts",
    "GradNorm",
    "GroupGradReducer",
    "Iteration",
    "LossExchange",
    "Routing",
    "Span",
    "WeightReturn",
    "any_rank",
    "clip_grads",
    "gather_timeline",
    "loss_tree",
    "part_tree",
    "select_forwards",
]
