"""The actions of one stage on torch: forward, recompute, input gradient, weight gradient."""

from penstock.runtime.stage.cast_cache import keep_casts
from penstock.runtime.stage.graph import Graph
from penstock.runtime.stage.instrumentation import NULL_CONTEXT, EnterLayer, Instrumentation
from penstock.runtime.stage.loss import scale_loss, sum_losses
from penstock.runtime.stage.replica_sync import ReplicaSync, SyncPoint
from penstock.runtime.stage.separate_grads import separate_grads
from penstock.runtime.stage.stage import ComputeLoss, TorchStage
from penstock.runtime.stage.stage_job import StageJob
from penstock.runtime.stage.wgrad_functions import CAST_OF, DeferredFunction
from penstock.runtime.stage.wgrad_queue import WeightGradQueue

__all__ = [
    "CAST_OF",
    "NULL_CONTEXT",
    "ComputeLoss",
    "DeferredFunction",
    "EnterLayer",
    "Graph",
    "Instrumentation",
    "ReplicaSync",
    "StageJob",
    "SyncPoint",
    "TorchStage",
    "WeightGradQueue",
    "keep_casts",
    "scale_loss",
    "separate_grads",
    "sum_losses",
]
