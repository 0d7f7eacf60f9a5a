"""Plans within the limits of an engine: what its limits leave of a search space, and equal orders of replicas."""

from dataclasses import replace

import numpy as np

from penstock.export.limits import Limits
from penstock.plan import find_grid
from penstock.planners import SearchSpace, Solution
from penstock.program import Program, program_from_arrays, with_order


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
        sharded_optimizer=False,
        part_rows=False,
        unequal_replicas=search_space.unequal_replicas and limits.replicas == "unequal",
        unequal_shares=False,
        part_rounds=search_space.part_rounds and limits.part_rounds,
        maps=search_space.maps if maps is None else maps,
        schedule=search_space.schedule or limits.schedule,
    )


def with_equal_orders(solution: Solution) -> Solution:
    """The same plan with one order of the actions for all replicas of a pipeline rank, as engines have.

    Planners order the actions of every device by themselves, so replicas on unequal devices can differ. The first
    replica's orders are those of a whole pipeline, so they cannot deadlock for the others either.

    Args:
        solution: A plan with its compute program. One that is no grid of ranks and replicas is returned as it is.
    """
    try:
        grid = find_grid(solution.plan)
    except ValueError:
        return solution
    program = solution.program
    first = {name: devices[0] for devices in grid.devices for name in devices}
    spans = []
    for name in program.devices:
        number = program.devices.index(first.get(name, name))
        spans.append(np.arange(int(program.offsets[number]), int(program.offsets[number + 1])))
    rows = np.concatenate(spans)
    arrays = (program.kind[rows], program.stage[rows], program.microbatch[rows])
    equal = program_from_arrays(program.plan, program.devices, [len(span) for span in spans], *arrays)
    return solution if equal.same_actions(program) else _with_program(solution, equal)


def _with_program(solution: Solution, program: Program) -> Solution:
    plan = with_order(solution.plan, program)
    return Solution(plan, replace(solution.costs, plan=plan), replace(program, plan=plan))
