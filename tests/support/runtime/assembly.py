"""The phases of assembly that need no process group, for one rank."""

from typing import TYPE_CHECKING, cast

from penstock.plan.types import Plan
from penstock.runtime.assembly.compilation import Compiled, Validated, compile_program, validate
from penstock.runtime.assembly.stages import build_stages
from penstock.runtime.options import PipelineOptions
from penstock.runtime.stage.stage import TorchStage
from tests.support.runtime.models import KINDS
from tests.support.runtime.user_models import plan_of

if TYPE_CHECKING:
    from penstock.runtime.transport.protocol import Transport

OPTIONS = PipelineOptions()
NO_TRANSPORT = cast("Transport", object())
"""Stages may hold it, and must not use it before they run with other replicas."""
PLAN = plan_of([0, 3, 7], [["d0"], ["d1"]])
"""Two stages of the model "mlp"."""


def build(kind: str, plan: Plan, rank: int) -> tuple[Validated, Compiled, dict[int, TorchStage]]:
    """Results of phases 1, 2 and 6."""
    validated = validate(KINDS[kind].model(), plan, OPTIONS)
    compiled = compile_program(validated, OPTIONS)
    return validated, compiled, build_stages(validated, compiled, validated.blocks, rank, NO_TRANSPORT, OPTIONS)
