"""Finding the profile and the cluster that a plan names.

A plan names files relative to the directory in which it was made. They are searched as named from the current
directory, then from the directory of the plan's file, then by their file name in that directory. The first file with
the digest that the plan records is used.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from penstock.bundle.sources import ProfileSource, parse_source
from penstock.cluster import Cluster, load_cluster
from penstock.errors import InputError
from penstock.plan import Origin, Plan
from penstock.profile import Profile

T = TypeVar("T", Cluster, Profile)


def cluster_of(plan: Plan, path: str) -> Cluster:
    """Load the cluster that a plan names; `path` is the plan's file."""
    source = _named(plan.cluster, path, "cluster")
    return _load_matching(source, path, plan.cluster, "cluster", load_cluster)


def profile_of(plan: Plan, path: str, cluster: Cluster) -> Profile:
    """Load the profile that a plan names, for the device kinds of the cluster."""
    named = parse_plan_source(_named(plan.profile, path, "profile"), path)

    def load(source: str) -> Profile:
        return load_for(replace(named, source=source), plan, cluster)

    return _load_matching(named.source, path, plan.profile, "profile", load)


def load_for(source: ProfileSource, plan: Plan, cluster: Cluster) -> Profile:
    """Load a profile for a plan's micro-batch size, unless the source names another, and the cluster's device kinds.

    A plan can be for other micro-batches than its profile: then the profile as it is has the plan's digest.
    """
    source = source.for_cluster(cluster)
    if source.micro_batch_size is not None:
        return source.load()
    adapted = replace(source, micro_batch_size=plan.micro_batch_size).load()
    if adapted.digest == plan.profile.digest:
        return adapted
    unchanged = source.load()
    return unchanged if unchanged.digest == plan.profile.digest else adapted


def parse_plan_source(text: str, path: str) -> ProfileSource:
    """Parse the source that a file names; an error names the file."""
    try:
        return parse_source(text)
    except (ValueError, IndexError, KeyError):
        where = f"{path}, at $.profile.source"
        raise InputError(f"{text[:60]!r} is not a profile", where=where, hint="Name it with --profile.") from None


def _named(origin: Origin, path: str, what: str) -> str:
    if not origin.source:
        raise InputError(f"the file does not name its {what}", where=path, hint=f"Name it with --{what}.")
    return origin.source


def _load_matching(source: str, path: str, origin: Origin, what: str, load: Callable[[str], T]) -> T:
    """Load the first candidate with the plan's digest, or else the first readable one; `price` reports what differs."""
    readable: list[T] = []
    errors: list[InputError] = []
    for candidate in _candidates(source, path):
        try:
            loaded = load(candidate)
        except InputError as error:
            errors.append(error)
            continue
        if loaded.digest == origin.digest:
            return loaded
        readable.append(loaded)
    if readable:
        return readable[0]
    hint = f"{path} names it as its {what}; name another with --{what}."
    raise InputError(errors[0].what, where=errors[0].where, hint=hint)


def _candidates(source: str, path: str) -> list[str]:
    """The source as named, which may be a built-in name, then files of that name near the plan's file."""
    folder = Path(path).parent
    beside = [str(item) for item in (folder / source, folder / Path(source).name) if _is_file(item)]
    return list(dict.fromkeys((source, *beside)))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # not a valid file name
        return False
