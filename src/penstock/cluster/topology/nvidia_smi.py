"""The matrix that `nvidia-smi topo -m` prints: GPUs of one host, and the class of what joins each two of them."""

import re

from penstock.cluster.topology.link_types import MAX_LINKS_OF_A_GPU, LinkTypes
from penstock.cluster.topology.one_host import repeat_host
from penstock.cluster.topology.wanted import CLASS_NOTE, UNKNOWN_KIND, Wanted, kind_notes
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError

_COLOURS = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]|\x1b[()][A-Z0-9]")
_GPU = re.compile(r"GPU\d+\Z")
_COLUMN = re.compile(r"[A-Za-z][\w.-]*\d[\w.-]*\Z")
_NVLINKS = re.compile(r"NV(\d{1,3})\Z")
_OLD_NAMES = {"SOC": "SYS", "PSB": "PXB"}
_CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")
_HINT = "Give it the whole output of: nvidia-smi topo -m"


def looks_like_nvidia_smi(text: str) -> bool:
    """Whether there is a line of columns GPU0, GPU1, ..."""
    return any(_columns(line) for line in _lines(text))


def parse_nvidia_smi(text: str, *, name: str, where: str, wanted: Wanted) -> Cluster:
    r"""The cluster of the text; prompts, legends, colours and lines about MIG around the matrix are passed over.

    >>> text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-31\nGPU1\tNV4\t X \t0-31\n"
    >>> cluster = parse_nvidia_smi(text, name="two", where="topo.txt", wanted=Wanted(kind="A100-40"))
    >>> cluster.num_devices, cluster.hosts[0].inside.bandwidth
    (2, 80000000000.0)
    """
    wanted.refuse("nvidia-smi", "devices_per_host", "nodes")
    columns, rows = _matrix(text, where)
    gpus = [column for column in columns if _GPU.match(column)]
    wires: dict[tuple[int, int], Wire] = {}
    for source, row in enumerate(gpus):
        if row not in rows:
            raise InputError(f"the row of {row} is missing", where=where, hint=_HINT)
        line, cells = rows[row]
        for target, column in enumerate(gpus):
            if source != target:
                wires[source, target] = _wire(cells[columns.index(column)], wanted.links, f"{where}:{line}")
    kind = wanted.kind or UNKNOWN_KIND
    notes = [CLASS_NOTE, *kind_notes({kind}, said=wanted.kind is not None)]
    nics = [column for column in columns if not _GPU.match(column)]
    if nics:
        notes.append(
            f"Of the {len(nics)} network interfaces nothing is known but where they are: --between says the rest."
        )
    return repeat_host(name, [kind] * len(gpus), wires, wanted, where=where, between=None, assumptions=notes)


def _lines(text: str) -> list[str]:
    return _COLOURS.sub("", text).splitlines()


def _columns(line: str) -> list[str]:
    """The names of the columns, if this is the line that has them: those before `CPU Affinity`."""
    words = line.split()
    names = words[: words.index("CPU")] if "CPU" in words else words
    if not names or not _GPU.match(names[0]) or not all(_COLUMN.match(word) for word in names):
        return []
    return [] if any(_is_cell(word) for word in names) else names


def _is_cell(word: str) -> bool:
    return word in ("X", *_CLASSES, *_OLD_NAMES) or _NVLINKS.match(word) is not None


def _matrix(text: str, where: str) -> tuple[list[str], dict[str, tuple[int, list[str]]]]:
    """The columns, and of each row its line and cells."""
    columns: list[str] = []
    rows: dict[str, tuple[int, list[str]]] = {}
    for number, line in enumerate(_lines(text), 1):
        words = line.split()
        if not columns:
            columns = _columns(line)
            if len(set(columns)) < len(columns):
                raise InputError("a column is there twice", where=f"{where}:{number}", hint=_HINT)
            continue
        if not words or words[0] not in columns:
            continue  # an empty line, a legend, a MIG device
        if words[0] in rows:
            raise InputError(f"the row of {words[0]} is there twice", where=f"{where}:{number}", hint=_HINT)
        cells = words[1 : len(columns) + 1]
        if len(cells) < len(columns):
            what = f"the row of {words[0]} has {len(cells)} of {len(columns)} cells"
            raise InputError(what, where=f"{where}:{number}", hint=_HINT)
        rows[words[0]] = number, cells
    if not columns:
        raise InputError("there is no line with the columns GPU0, GPU1, ...", where=where, hint=_HINT)
    return columns, rows


def _wire(cell: str, links: LinkTypes, where: str) -> Wire:
    match = _NVLINKS.match(cell)
    if match and 1 <= int(match[1]) <= MAX_LINKS_OF_A_GPU:
        return links.nvlinks(int(match[1]))
    name = _OLD_NAMES.get(cell, cell)
    if name not in _CLASSES:
        known = ", ".join(("NV1, NV2, ...", *_CLASSES))
        raise InputError(f"{cell[:40]!r} is no class of links", where=where, hint=f"Known are {known}.")
    return links.wire(name)
