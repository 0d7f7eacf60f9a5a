"""pipeline.json: the stages of an export as data, for loaders and for the way back."""

from typing import Annotated

import msgspec

from penstock import io
from penstock.export.subject import Subject

FORMAT = "penstock.export/1"
Count = Annotated[int, msgspec.Meta(ge=1)]


class ExportedStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A stage: its pipeline rank, its modules in order, and the index of its first layer and after its last one."""

    rank: Annotated[int, msgspec.Meta(ge=0)]
    modules: tuple[str, ...]
    start: Annotated[int, msgspec.Meta(ge=0)]
    stop: Count


class PipelineFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The contents of pipeline.json."""

    format: str = FORMAT
    engine: str
    num_microbatches: Count
    micro_batch_size: Count
    """Rows of a micro-batch on each replica."""
    pipeline_ranks: Count
    replicas: Count
    predicted_iteration_s: float
    stages: tuple[ExportedStage, ...]
    devices: tuple[tuple[str, ...], ...]
    """The devices of each pipeline rank, one for each replica."""


def pipeline_json(subject: Subject, engine: str, modules: tuple[tuple[str, ...], ...]) -> str:
    """The text of pipeline.json."""
    grid = subject.grid
    stages = [
        ExportedStage(rank=rank, modules=names, start=stage.start, stop=stage.stop)
        for rank, names, stage in zip(grid.rank_of_stage, modules, subject.plan.stages, strict=True)
    ]
    data = PipelineFile(
        engine=engine,
        num_microbatches=subject.plan.num_microbatches,
        micro_batch_size=subject.rows_per_replica,
        pipeline_ranks=grid.num_ranks,
        replicas=grid.num_replicas,
        predicted_iteration_s=subject.prediction.iteration_s,
        stages=tuple(stages),
        devices=grid.devices,
    )
    return io.encode_json(data).decode()
