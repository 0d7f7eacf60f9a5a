"""What torchtitan and NeMo Automodel have in common: both run torch's schedules on parts that they name themselves."""

from collections.abc import Iterator

from penstock.export.limits import Obstacle
from penstock.export.subject import Subject
from penstock.plan import Shape

MAPS = frozenset(Shape)


def schedule_class(subject: Subject) -> str:
    """The schedule to name beside a CSV: both engines take the map of stages to ranks from it, not from the CSV."""
    return "ZBVZeroBubble" if subject.grid.shape is Shape.V else "PipelineScheduleMulti"


def too_few_ranks(subject: Subject, title: str) -> Iterator[Obstacle]:
    """A plan with one pipeline rank. Both engines then run no pipeline, and the whole batch at once."""
    if subject.grid.num_ranks == 1:
        what = f"the plan has one pipeline rank, and {title} divides batches into micro-batches only for two or more"
        yield Obstacle("one pipeline rank", what, "--no-replication")
