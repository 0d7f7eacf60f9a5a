"""Loading of clusters: from a TOML file, or from a short spec such as "8 x A100-40 @ 100 GB/s"."""

import re
from pathlib import Path

from penstock.cluster.declaration import ClusterDeclaration, Traits, complete
from penstock.cluster.toml import parse_wire, read_cluster
from penstock.cluster.types import Cluster
from penstock.errors import InputError

_MAX_SPEC = 300
_COUNT = re.compile(r"\s*([0-9]{1,12})\s*[xX×*]\s*")
_HINT = "Write [hosts x] devices x kind @ inside [/ between], such as '2 x 4 x V100-16 @ 100 GB/s / 1.25 GB/s'."


def load_cluster(path_or_spec: str | Path) -> Cluster:
    """Load a cluster from a TOML file or a short spec.

    Args:
        path_or_spec: Path of a TOML file (docs/clusters.md), or a spec: `[hosts x] devices x kind @ inside
            [/ between]`. A `Path` is always a file.

    Returns:
        The cluster. Its `assumptions` list everything that the source does not specify.

    Raises:
        FileError: The file cannot be read.
        InputError: The file or the spec is invalid; the error names the key.

    Example:
        >>> cluster = load_cluster("8 x A100-40 @ 100 GB/s")
        >>> cluster.num_devices, cluster.devices[0].memory_bytes
        (8, 40000000000)
    """
    if isinstance(path_or_spec, str) and looks_like_spec(path_or_spec):
        return parse_spec(path_or_spec)
    return read_cluster(path_or_spec)


def looks_like_spec(text: str) -> bool:
    """Return whether a text is intended as a spec, valid or not, rather than as the path of a file.

    >>> looks_like_spec("8 x A100-40 @ 100 GB/s"), looks_like_spec("8x4.toml"), looks_like_spec("clusters/lab")
    (True, False, False)
    """
    return not text.strip().lower().endswith(".toml") and (" @ " in text or _COUNT.match(text) is not None)


def parse_spec(text: str) -> Cluster:
    """Parse a short spec: devices x kind @ inside, or hosts x devices x kind @ inside / between.

    >>> parse_spec("2 x 4 x V100-16 @ 100 GB/s / 1.25 GB/s").bandwidth[0, [1, 4]].tolist()
    [100000000000.0, 1250000000.0]
    """
    where = repr(text[:60] + "..." if len(text) > 60 else text)
    if len(text) > _MAX_SPEC or not text.isprintable():
        raise InputError("not a cluster spec", where=where, hint=_HINT)
    left, at_sign, right = text.partition("@")
    counts: list[int] = []
    while len(counts) < 2 and (match := _COUNT.match(left)):
        counts.append(int(match[1]))
        left = left[match.end() :]
    kind = left.strip()
    if not counts or not kind or _COUNT.match(left):
        raise InputError("a cluster spec must begin with a number of devices and their kind", where=where, hint=_HINT)
    if 0 in counts:
        raise InputError("the numbers of hosts and devices must be at least 1", where=where, hint=_HINT)
    # A slash that is part of a unit is followed by an s.
    wires = re.split(r"/(?!\s*s\b)", right) if at_sign else []
    if len(wires) > len(counts):
        what = f"number of bandwidths ({len(wires)}) exceeds the number of counts before the kind ({len(counts)})"
        raise InputError(what, where=where, hint=_HINT)
    if (counts[-1] > 1 and not wires) or (len(counts) > 1 and counts[0] > 1 and len(wires) < 2):
        missing = "between hosts" if wires else "between the devices"
        raise InputError(f"the bandwidth {missing} is missing", where=where, hint=_HINT)
    keys = ("inside", "between")
    declared = {key: parse_wire(wire, key=key, where=where) for key, wire in zip(keys, wires, strict=False)}
    return complete(
        ClusterDeclaration(
            where=where,
            name=text.strip(),
            num_hosts=counts[0] if len(counts) > 1 else 1,
            devices_per_host=counts[-1],
            traits=Traits(kind=kind),
            inside=declared.get("inside"),
            between=declared.get("between"),
        )
    )
