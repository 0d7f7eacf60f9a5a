"""Detection of topology formats of other tools, and dispatch to their readers."""

from collections.abc import Callable, Mapping
from pathlib import PurePath
from types import MappingProxyType

from penstock.cluster.topology.csv_matrix import looks_like_csv, parse_csv
from penstock.cluster.topology.nccl import looks_like_nccl, parse_nccl
from penstock.cluster.topology.nvidia_smi import looks_like_nvidia_smi, parse_nvidia_smi
from penstock.cluster.topology.options import ImportOptions
from penstock.cluster.topology.slurm import looks_like_slurm, looks_like_slurm_yaml, parse_slurm, parse_slurm_yaml
from penstock.cluster.types import Cluster
from penstock.errors import InputError

MAX_CHARACTERS = 16_000_000

Reader = Callable[..., Cluster]

# The order matters: unambiguous formats come first.
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
    text: str, *, name: str, where: str, source: str | None = None, options: ImportOptions | None = None
) -> Cluster:
    """Parse the topology output of another tool.

    Args:
        text: The output.
        name: Name of the cluster.
        where: Name of the file, for errors. A file named .csv that matches no other format is read as CSV, so that
            the error names the problem.
        source: One of `FORMATS`. None: detected from the text.
        options: Properties that the text does not contain.

    Raises:
        InputError: The format is not recognised, the text is invalid, or an option does not apply to the format.
    """
    if len(text) > MAX_CHARACTERS:
        what = f"the text has more than {MAX_CHARACTERS:,} characters"
        raise InputError(what, where=where, hint="Check that this is the right file.")
    for known in FORMATS if source is None else (source,):
        readers = _READERS[known]
        chosen = next((read for looks_like, read in readers if looks_like(text)), None)
        if chosen is None and source is not None:
            chosen = readers[-1][1]
        if chosen is not None:
            return chosen(text, name=name or "cluster", where=where, options=options or ImportOptions())
    if source is None and PurePath(where).suffix.lower() == ".csv":
        return parse_csv(text, name=name or "cluster", where=where, options=options or ImportOptions())
    hint = f"Choose one of {', '.join(FORMATS)} with --from. A cluster file of Penstock needs no import."
    raise InputError("the topology format is not recognised", where=where, hint=hint)
