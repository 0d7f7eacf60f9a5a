"""From a plan to its timeline in one call."""

from dataclasses import dataclass

from penstock.cluster import Cluster
from penstock.plan import Plan
from penstock.plan.pricing import Costs, price
from penstock.profile import Profile
from penstock.program import Program
from penstock.program.lowering import lower
from penstock.program.proof import Proof, prove
from penstock.schedules import schedule
from penstock.simulate.compiled import simulate
from penstock.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A plan with everything that follows from it."""

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
    """Price a plan, order its jobs by its schedule, lower and prove the program, and simulate it."""
    return evaluate_costs(price(plan, profile, cluster, strict=strict), within_memory=within_memory)


def evaluate_costs(costs: Costs, *, program: Program | None = None, within_memory: bool = True) -> Evaluation:
    """The same from a priced plan; with a program, that one is used instead of the plan's schedule."""
    found = schedule(costs) if program is None else program
    proof = prove(found if found.is_lowered else lower(found, costs), costs, within_memory=within_memory)
    return Evaluation(costs, proof, simulate(proof))
