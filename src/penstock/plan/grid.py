"""`Grid`: the pipeline ranks of a plan, and the replicas of each, as engines number them."""

from dataclasses import dataclass

from penstock.plan.shapes import Shape
from penstock.plan.types import Plan


@dataclass(frozen=True)
class Grid:
    """Pipeline ranks times replicas.

    Attributes:
        devices: The devices of each pipeline rank, one for each replica.
        rank_of_stage: The pipeline rank of each stage. Ranks are numbered in the order of their first stage.
    """

    devices: tuple[tuple[str, ...], ...]
    rank_of_stage: tuple[int, ...]

    @property
    def num_ranks(self) -> int:
        """The number of pipeline ranks."""
        return len(self.devices)

    @property
    def num_replicas(self) -> int:
        """The number of replicas of the first pipeline rank; of all, if replicas are equal."""
        return len(self.devices[0])

    @property
    def num_chunks(self) -> int:
        """The number of stages of each pipeline rank; the average, if they differ, rounded up."""
        return -(-len(self.rank_of_stage) // self.num_ranks)

    @property
    def shape(self) -> Shape | None:
        """The shape of the map of stages to pipeline ranks; None for any other map."""
        if len(self.rank_of_stage) % self.num_ranks:
            return None
        for shape in Shape:
            is_possible = self.num_chunks == 1 if shape is Shape.STRAIGHT else self.num_chunks > 1
            if is_possible and list(self.rank_of_stage) == shape.stage_devices(self.num_ranks, self.num_chunks):
                return shape
        return None

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages of a pipeline rank."""
        return tuple(stage for stage, other in enumerate(self.rank_of_stage) if other == rank)


def find_grid(plan: Plan) -> Grid:
    """The grid of a plan with one set of cuts.

    Raises:
        ValueError: A device belongs to two different groups.
    """
    groups: dict[tuple[str, ...], int] = {}
    group_of: dict[str, tuple[str, ...]] = {}
    ranks = []
    for number, stage in enumerate(plan.stages):
        names = tuple(replica.device for replica in stage.forward)
        for name in names:
            if group_of.setdefault(name, names) != names:
                raise ValueError(
                    f"device {name!r} is in the group {', '.join(group_of[name])} and in the group of stage {number}, "
                    f"{', '.join(names)}"
                )
        ranks.append(groups.setdefault(names, len(groups)))
    return Grid(tuple(groups), tuple(ranks))
