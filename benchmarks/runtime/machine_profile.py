"""The profile of a workload and the cluster of this machine."""

from benchmarks.runtime import rank_functions
from benchmarks.runtime.plans import MESSAGE_BYTES, this_machine
from benchmarks.runtime.ranks import Ranks
from benchmarks.runtime.workloads import Workload
from penstock import Cluster, Profile


def measure_machine(
    ranks: Ranks, workload: Workload, seconds: float, *, overheads: bool = True
) -> tuple[Profile, Cluster]:
    """Measure the profile, on both ranks at the same time, and the cluster. Overheads take some seconds more."""
    profile: Profile = ranks.on_all(rank_functions.measure_profile, workload, seconds)[0]
    if overheads:
        profile = ranks.on_first(rank_functions.add_overheads, profile, workload)
    message_s = ranks.on_all(rank_functions.measure_messages, MESSAGE_BYTES, 30)[0]
    return profile, this_machine(profile, message_s)
