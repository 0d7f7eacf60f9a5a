"""A schedule of your own, proved and simulated. It needs no torch.

python examples/custom_schedule.py [eager.json]

A schedule is a function from `Costs` to a compute `Program`. This one is eager 1F1B (Zhuang et al., "On Optimizing the
Communication of Model Parallelism", 2022): stage s of S runs 2 (S - s) - 1 forwards before its first backward, where
1F1B runs S - s. The additional micro-batches in flight hide the latency of slow links, and cost memory.

With a file name, the plan is written together with this order. Every command uses the order that a plan file holds, so
`penstock train` runs it too.
"""

import sys

import numpy as np
import numpy.typing as npt

import penstock
from penstock.program import with_order
from penstock.schedules.ordering import order_by_clock
from penstock.simulate import evaluate_costs

Ints = npt.NDArray[np.int64]


def eager_1f1b(costs: penstock.Costs) -> penstock.Program:
    """Order the actions by virtual times. Times that increase along all dependencies cannot deadlock."""
    num_stages = costs.plan.num_stages

    def forward(stage: Ints, microbatch: Ints) -> Ints:
        warm_up = microbatch < 2 * (num_stages - stage) - 1
        return np.where(warm_up, stage + microbatch, 3 * stage + 2 * microbatch - 2 * num_stages + 2)

    def backward(stage: Ints, microbatch: Ints) -> Ints:
        return 2 * num_stages - 1 - stage + 2 * microbatch

    return order_by_clock(costs, forward, backward, split=False)


def main() -> None:
    """Compare eager 1F1B with 1F1B over a slow network."""
    profile = penstock.load_profile("gpt2-xl", kinds=["A100-80"], micro_batch_size=2)
    cluster = penstock.load_cluster("4 x 1 x A100-80 @ 100 GB/s / 1.25 GB/s, 2 ms")
    plan = penstock.plan(profile, cluster, 16, planner="balanced", schedule="1f1b")
    costs = penstock.price(plan, profile, cluster)

    for name, program in (("1f1b", penstock.schedule(costs)), ("eager_1f1b", eager_1f1b(costs))):
        evaluation = evaluate_costs(costs, program=program)  # lowered, proved, simulated
        timeline = evaluation.timeline
        print(
            f"{name:10}  {timeline.iteration_s * 1e3:7.1f} ms"
            f"  bubble {penstock.bubble_fraction(timeline):5.1%}"
            f"  peak {max(evaluation.proof.peak_bytes) / 1e9:5.1f} GB"
        )
    for path in sys.argv[1:]:
        penstock.save_plan(with_order(plan, eager_1f1b(costs)), path)


if __name__ == "__main__":
    main()
