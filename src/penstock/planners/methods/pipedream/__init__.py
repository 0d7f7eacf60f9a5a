"""PipeDream: stages and replication with the least bottleneck."""

from penstock.planners.methods.pipedream.levels import Stage
from penstock.planners.methods.pipedream.planner import pipedream

__all__ = ["Stage", "pipedream"]
