"""Finding the profile and the cluster that a plan names.

A plan names files as they were named when it was made, from the folder of that day. So they are looked for as named
from where the user is, then from the folder of the plan's file, then beside it by their last name alone. The first of
them with the contents that the plan was made for is the right one.
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
    """The cluster that a plan names; `path` is the file that has the plan."""
    source = _named(plan.cluster, path, "cluster")
    return _first_right(source, path, plan.cluster, "cluster", load_cluster)


def profile_of(plan: Plan, path: str, cluster: Cluster) -> Profile:
    """The profile that a plan names, for the kinds of devices that the cluster has."""
    named = parse_saved(_named(plan.profile, path, "profile"), path)

    def load(source: str) -> Profile:
        return load_for(replace(named, source=source), plan, cluster)

    return _first_right(named.source, path, plan.profile, "profile", load)


def load_for(source: ProfileSource, plan: Plan, cluster: Cluster) -> Profile:
    """A profile as a plan needs it: for its rows, unless others are asked for, and for the cluster's kinds."""
    micro_batch_size = plan.micro_batch_size if source.micro_batch_size is None else source.micro_batch_size
    return replace(source, micro_batch_size=micro_batch_size).for_cluster(cluster).load()


def parse_saved(text: str, path: str) -> ProfileSource:
    """The source that a file remembers; what cannot be read is an error about that file."""
    try:
        return parse_source(text)
    except (ValueError, IndexError, KeyError):
        where = f"{path}, at $.profile.source"
        raise InputError(f"{text[:60]!r} is not a profile", where=where, hint="Name it with --profile.") from None


def _named(origin: Origin, path: str, what: str) -> str:
    if not origin.source:
        raise InputError(f"the file does not say where its {what} is", where=path, hint=f"Name it with --{what}.")
    return origin.source


def _first_right(source: str, path: str, origin: Origin, what: str, load: Callable[[str], T]) -> T:
    """The first with the plan's own digest; else the first that can be read, and whoever uses it says what differs."""
    readable: list[T] = []
    errors: list[InputError] = []
    for candidate in _candidates(source, path):
        try:
            found = load(candidate)
        except InputError as error:
            errors.append(error)
            continue
        if found.digest == origin.digest:
            return found
        readable.append(found)
    if readable:
        return readable[0]
    hint = f"{path} names it as its {what}; give another place with --{what}."
    raise InputError(errors[0].what, where=errors[0].where, hint=hint)


def _candidates(source: str, path: str) -> list[str]:
    """As named, which may be no file at all but a built-in name; then the files of that name with the plan's."""
    folder = Path(path).parent
    beside = [str(place) for place in (folder / source, folder / Path(source).name) if _is_file(place)]
    return list(dict.fromkeys((source, *beside)))


def _is_file(place: Path) -> bool:
    try:
        return place.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False
