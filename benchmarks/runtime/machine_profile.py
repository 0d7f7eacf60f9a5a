"""What plans are made from: the model as both ranks find it side by side, and the machine."""

from benchmarks.runtime import rank_functions
from benchmarks.runtime.plans import MESSAGE_BYTES, this_machine
from benchmarks.runtime.ranks import Ranks
from benchmarks.runtime.workloads import Subject
from penstock import Cluster, Profile


def measure_here(ranks: Ranks, subject: Subject, seconds: float, *, overheads: bool = True) -> tuple[Profile, Cluster]:
    """Its profile and its cluster; what the runtime spends around units takes some seconds more."""
    profile: Profile = ranks.on_all(rank_functions.measure_profile, subject, seconds)[0]
    if overheads:
        profile = ranks.on_first(rank_functions.add_overheads, profile, subject)
    message_s = ranks.on_all(rank_functions.measure_messages, MESSAGE_BYTES, 30)[0]
    return profile, this_machine(profile, message_s)
