"""`evaluate`: from a plan to its timeline in one call."""

from dataclasses import dataclass

from penstock.cluster import Cluster
from penstock.plan import Plan
from penstock.plan.pricing import Costs, price
from penstock.profile import Profile
from penstock.program import Program
from penstock.program.lowering import lower
from penstock.program.proof import Proof, prove
from penstock.schedules import schedule
from penstock.simulate.simulator import simulate
from penstock.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A priced, proved and simulated plan.

    Attributes:
        costs: The priced plan.
        proof: The proof of its lowered program.
        timeline: The simulated timeline.
    """

    costs: Costs
    proof: Proof
    timeline: Timeline

    @property
    def program(self) -> Program:
        """The lowered program."""
        return self.proof.program


def evaluate(
    plan: Plan, profile: Profile, cluster: Cluster, *, strict: bool = True, within_memory: bool = True
) -> Evaluation:
    """Price, order, lower, prove and simulate a plan.

    Args:
        plan: The plan. If it holds the order of its actions, that order is used.
        profile: The profile that it was made for.
        cluster: The cluster that it was made for.
        strict: Whether to reject other profiles and clusters.
        within_memory: Whether to reject a plan that does not fit into memory.

    Returns:
        The evaluation.

    Raises:
        MismatchError: The plan does not fit the profile or the cluster.
        ProofError: The program cannot run, or does not fit into memory.

    Example:
        >>> import penstock
        >>> profile = penstock.load_profile("gpt2", kinds=["T4"])
        >>> cluster = penstock.load_cluster("2 x T4 @ 1 GB/s")
        >>> plan = penstock.plan(profile, cluster, 4, planner="balanced")
        >>> evaluate(plan, profile, cluster).timeline.iteration_s > 0
        True
    """
    return evaluate_costs(price(plan, profile, cluster, strict=strict), within_memory=within_memory)


def evaluate_costs(costs: Costs, *, program: Program | None = None, within_memory: bool = True) -> Evaluation:
    """Evaluate a priced plan; `program` replaces its own order."""
    found = schedule(costs) if program is None else program
    proof = prove(found if found.is_lowered else lower(found, costs), costs, within_memory=within_memory)
    return Evaluation(costs, proof, simulate(proof))
