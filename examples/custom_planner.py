"""A planner of your own, compared with the built-in ones. It needs no torch.

python examples/custom_planner.py

A planner is a function from a `Problem` to a `Plan`. This one gives every stage the same bytes of parameters, which
evens out the memory of weights, gradients and optimizer state.
"""

from itertools import accumulate, pairwise

import penstock
from penstock.planners import Problem, make_problem

NUM_MICROBATCHES = 16


def even_parameters(problem: Problem) -> penstock.Plan:
    """Cut where the running sum of parameters passes the next multiple of total / stages."""
    sums = [0, *accumulate(unit.parameter_bytes for unit in problem.profile.units)]
    num_stages = len(problem.stage_devices)  # one entry for each stage: the index of its device
    cuts = [0]
    for stage in range(1, num_stages):
        target = sums[-1] * stage / num_stages
        nearest = min(range(len(sums)), key=lambda cut: abs(sums[cut] - target))
        # Every stage needs at least one layer.
        cuts.append(max(cuts[-1] + 1, min(nearest, problem.profile.num_units - (num_stages - stage))))
    cuts.append(problem.profile.num_units)
    return problem.pipeline("even_parameters", cuts)


def main() -> None:
    """Print iteration time and peak memory of this planner and of three built-in ones."""
    profile = penstock.load_profile("gpt2-xl", kinds=["A100-40"], micro_batch_size=4)
    cluster = penstock.load_cluster("4 x A100-40 @ 100 GB/s")

    problem = make_problem(profile, cluster, NUM_MICROBATCHES, planner="uniform", schedule="1f1b")
    plans = [even_parameters(problem)]
    plans += [
        penstock.plan(profile, cluster, NUM_MICROBATCHES, planner=name, schedule="1f1b")
        for name in ("uniform", "balanced", "spp")
    ]
    for plan in plans:
        # Priced, ordered, lowered, proved and simulated, as for any other plan.
        evaluation = penstock.evaluate(plan, profile, cluster)
        sizes = [stop - start for start, stop in pairwise([*(stage.start for stage in plan.stages), plan.num_units])]
        iteration_ms = evaluation.timeline.iteration_s * 1e3
        peak_gb = max(evaluation.proof.peak_bytes) / 1e9
        print(f"{plan.planner:16} {iteration_ms:7.1f} ms  peak {peak_gb:5.1f} GB  layers per stage {sizes}")


if __name__ == "__main__":
    main()
