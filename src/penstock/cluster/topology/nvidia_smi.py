"""Reader of the matrix that `nvidia-smi topo -m` prints: the GPUs of one host and the link class of each pair."""

import re

from penstock.cluster.topology.link_types import MAX_LINKS_OF_A_GPU, LinkTypes
from penstock.cluster.topology.one_host import repeat_host, sharing_note
from penstock.cluster.topology.options import UNKNOWN_KIND, ImportOptions, class_notes, kind_notes
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError
from penstock.units import show_count, show_rate

_COLOURS = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]|\x1b[()][A-Z0-9]|\[[0-9;]*m")
"""Escape sequences of terminals; logs often lack their first character."""
_MIG = re.compile(r"\s*MIG\s")
_GPU = re.compile(r"GPU\d+\Z")
_COLUMN = re.compile(r"[A-Za-z][\w.-]*\d[\w.-]*\Z")
_NVLINKS = re.compile(r"NV(\d{1,3})\Z")
_OLD_NAMES = {"SOC": "SYS", "PSB": "PXB"}
_CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")
_GENERATIONS = {"P100": 60, "RTX-3090": 86, "A6000": 86, "H100": 90, "H200": 90, "B200": 100}
"""Device kinds with another NVLink bandwidth than most, and their compute capability."""
_HINT = "Provide the complete output of: nvidia-smi topo -m"


def looks_like_nvidia_smi(text: str) -> bool:
    """Return whether a line has the columns GPU0, GPU1, ..."""
    return any(_columns(line) for line in _lines(text))


def parse_nvidia_smi(text: str, *, name: str, where: str, options: ImportOptions) -> Cluster:
    r"""Parse the matrix. Prompts, legends, colours and lines about MIG around it are ignored.

    >>> text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-31\nGPU1\tNV4\t X \t0-31\n"
    >>> cluster = parse_nvidia_smi(text, name="two", where="topo.txt", options=ImportOptions(kind="A100-40"))
    >>> cluster.num_devices, cluster.hosts[0].inside.bandwidth
    (2, 80000000000.0)
    """
    options.refuse("nvidia-smi", "devices_per_host", "nodes")
    columns, rows = _matrix(text, where)
    gpus = [column for column in columns if _GPU.match(column)]
    kind = options.kind or UNKNOWN_KIND
    wires: dict[tuple[int, int], Wire] = {}
    classes: dict[str, Wire] = {}
    for source, row in enumerate(gpus):
        if row not in rows:
            raise InputError(f"the row of {row} is missing", where=where, hint=_HINT)
        line, cells = rows[row]
        for target, column in enumerate(gpus):
            if source != target:
                link_class = _class(cells[columns.index(column)], f"{where}:{line}")
                wires[source, target] = classes[link_class] = _wire(link_class, options.links, _GENERATIONS.get(kind))
    notes = [*class_notes(classes, options.links), *kind_notes({kind}, is_specified=options.kind is not None)]
    if any(_MIG.match(line) for line in _lines(text)):
        notes.append("Some GPUs are divided into MIG devices: each GPU counts as one device.")
    interface, net_notes = _network(len(columns) - len(gpus), len(gpus), options)
    notes += net_notes
    return repeat_host(
        name, [kind] * len(gpus), wires, options, where=where, between=None, interface=interface, assumptions=notes
    )


def _network(num_nics: int, num_gpus: int, options: ImportOptions) -> tuple[float | None, list[str]]:
    """Return the bandwidth of the interface that the devices of a host share, if they do, and notes about it."""
    if options.between is None:
        if not num_nics:
            return None, []
        missing = f"The text has no bandwidth for its {show_count(num_nics, 'network interface')}"
        return None, [f'{missing}: for several such hosts, specify it (--hosts 4 --between "12 GB/s, 15 us").']
    if (options.num_hosts or 1) == 1 or num_gpus == 1:
        return None, []
    if not num_nics:
        return None, ["The text has no network interface: each GPU is assumed to have its own."]
    note = sharing_note(num_nics, num_gpus)
    if num_nics >= num_gpus:
        return None, [note]
    total = num_nics * options.between.bandwidth
    each = "it" if num_nics == 1 else "each of them"
    return total, [f"{note[:-1]}; --between applies to {each}, {show_rate(total)} in total."]


def _lines(text: str) -> list[str]:
    return _COLOURS.sub("", text).splitlines()


def _columns(line: str) -> list[str]:
    """Return the column names before `CPU Affinity` if this is the header line, else an empty list."""
    words = line.split()
    names = words[: words.index("CPU")] if "CPU" in words else words
    if not names or not _GPU.match(names[0]) or not all(_COLUMN.match(word) for word in names):
        return []
    return [] if any(_is_cell(word) for word in names) else names


def _is_cell(word: str) -> bool:
    return word in ("X", *_CLASSES, *_OLD_NAMES) or _NVLINKS.match(word) is not None


def _matrix(text: str, where: str) -> tuple[list[str], dict[str, tuple[int, list[str]]]]:
    """Return the columns, and the line number and cells of each row."""
    columns: list[str] = []
    rows: dict[str, tuple[int, list[str]]] = {}
    for number, line in enumerate(_lines(text), 1):
        words = line.split()
        if not columns:
            columns = _columns(line)
            if len(set(columns)) < len(columns):
                raise InputError("duplicate column", where=f"{where}:{number}", hint=_HINT)
            continue
        if not words or words[0] not in columns:
            continue  # an empty line, a legend, a MIG device
        if words[0] in rows:
            raise InputError(f"duplicate row {words[0]}", where=f"{where}:{number}", hint=_HINT)
        cells = words[1 : len(columns) + 1]
        if len(cells) < len(columns):
            what = f"the row of {words[0]} has {len(cells)} of {len(columns)} cells"
            raise InputError(what, where=f"{where}:{number}", hint=_HINT)
        rows[words[0]] = number, cells
    if not columns:
        raise InputError("no line has the columns GPU0, GPU1, ...", where=where, hint=_HINT)
    return columns, rows


def _class(cell: str, where: str) -> str:
    match = _NVLINKS.match(cell)
    if match and 1 <= int(match[1]) <= MAX_LINKS_OF_A_GPU:
        return f"NV{int(match[1])}"
    name = _OLD_NAMES.get(cell, cell)
    if name not in _CLASSES:
        known = ", ".join(("NV1, NV2, ...", *_CLASSES))
        raise InputError(f"unknown link class {cell[:40]!r}", where=where, hint=f"Known classes: {known}.")
    return name


def _wire(name: str, links: LinkTypes, sm: int | None) -> Wire:
    match = _NVLINKS.match(name)
    return links.nvlinks(int(match[1]), sm) if match else links.wire(name)
