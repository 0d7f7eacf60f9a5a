"""One door to topologies of other tools: finds out which it is, and reads it."""

from collections.abc import Callable, Mapping
from pathlib import PurePath
from types import MappingProxyType

from penstock.cluster.topology.csv_matrix import looks_like_csv, parse_csv
from penstock.cluster.topology.nccl import looks_like_nccl, parse_nccl
from penstock.cluster.topology.nvidia_smi import looks_like_nvidia_smi, parse_nvidia_smi
from penstock.cluster.topology.options import Wanted
from penstock.cluster.topology.slurm import looks_like_slurm, looks_like_slurm_yaml, parse_slurm, parse_slurm_yaml
from penstock.cluster.types import Cluster
from penstock.errors import InputError

MAX_CHARACTERS = 16_000_000

Reader = Callable[..., Cluster]

# The order matters: what is plainer comes first.
_READERS: Mapping[str, tuple[tuple[Callable[[str], bool], Reader], ...]] = MappingProxyType(
    {
        "nccl": ((looks_like_nccl, parse_nccl),),
        "nvidia-smi": ((looks_like_nvidia_smi, parse_nvidia_smi),),
        "slurm": ((looks_like_slurm_yaml, parse_slurm_yaml), (looks_like_slurm, parse_slurm)),
        "csv": ((looks_like_csv, parse_csv),),
    }
)
FORMATS = tuple(_READERS)


def parse_topology(
    text: str, *, name: str, where: str, source: str | None = None, wanted: Wanted | None = None
) -> Cluster:
    """The cluster of a topology; `source` is one of `FORMATS`, or found out if it is not given.

    What a file named .csv holds is taken for CSV if it is nothing else: so it is said what is wrong with it.
    """
    if len(text) > MAX_CHARACTERS:
        what = f"the text has more than {MAX_CHARACTERS:,} characters"
        raise InputError(what, where=where, hint="Is it the right file?")
    for known in FORMATS if source is None else (source,):
        readers = _READERS[known]
        chosen = next((read for looks_like, read in readers if looks_like(text)), None)
        if chosen is None and source is not None:
            chosen = readers[-1][1]
        if chosen is not None:
            return chosen(text, name=name or "cluster", where=where, wanted=wanted or Wanted())
    if source is None and PurePath(where).suffix.lower() == ".csv":
        return parse_csv(text, name=name or "cluster", where=where, wanted=wanted or Wanted())
    hint = f"Known are {', '.join(FORMATS)}: say which with --from. A cluster file of Penstock needs no import."
    raise InputError("this is no topology that is known", where=where, hint=hint)
