"""The search space of an engine: what its limits leave of a search space."""

from dataclasses import replace

from penstock.export.limits import Limits
from penstock.planners import SearchSpace


def restrict(search_space: SearchSpace, limits: Limits) -> SearchSpace:
    """The part of a search space that an engine can run.

    Args:
        search_space: The search space.
        limits: The engine.

    Raises:
        InputError: The search space has a schedule with split backwards, which the engine does not run.
    """
    maps = limits.shapes
    if maps is not None and search_space.maps is not None:
        maps &= search_space.maps
    return replace(
        search_space,
        two_cuts=False,
        split_backward=search_space.split_backward and limits.split_backward,
        recomputation=search_space.recomputation and limits.recompute != "none",
        part_recomputation=search_space.part_recomputation and limits.recompute == "stage",
        part_rows=False,
        unequal_replicas=search_space.unequal_replicas and limits.replicas == "unequal",
        unequal_shares=False,
        part_rounds=search_space.part_rounds and limits.part_rounds,
        maps=search_space.maps if maps is None else maps,
        schedule=search_space.schedule or limits.schedule,
    )
