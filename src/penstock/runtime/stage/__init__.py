"""One stage on torch: forward, recompute, input gradient, weight gradient."""

from penstock.runtime.stage.instrumentation import NOTHING
from penstock.runtime.stage.loss import Loss, add_up, scaled
from penstock.runtime.stage.replica_sync import Meeting, Turn
from penstock.runtime.stage.stage import Finish, Graph, TorchStage
from penstock.runtime.stage.stage_job import Job
from penstock.runtime.stage.wgrad_functions import CAST_OF
from penstock.runtime.stage.wgrad_queue import WeightJobs

__all__ = [
    "CAST_OF",
    "NOTHING",
    "Finish",
    "Graph",
    "Job",
    "Loss",
    "Meeting",
    "TorchStage",
    "Turn",
    "WeightJobs",
    "add_up",
    "scaled",
]
