"""The matrix that `nvidia-smi topo -m` prints: GPUs of one host, and the class of what joins each two of them."""

import re

from penstock.cluster.topology.link_types import MAX_LINKS_OF_A_GPU, LinkTypes
from penstock.cluster.topology.one_host import repeat_host, sharing_note
from penstock.cluster.topology.options import UNKNOWN_KIND, Wanted, class_notes, kind_notes
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError
from penstock.units import counted, show_rate

_COLOURS = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]|\x1b[()][A-Z0-9]|\[[0-9;]*m")
"""What a terminal takes as colours; logs often have lost the first character of it."""
_MIG = re.compile(r"\s*MIG\s")
_GPU = re.compile(r"GPU\d+\Z")
_COLUMN = re.compile(r"[A-Za-z][\w.-]*\d[\w.-]*\Z")
_NVLINKS = re.compile(r"NV(\d{1,3})\Z")
_OLD_NAMES = {"SOC": "SYS", "PSB": "PXB"}
_CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")
_GENERATIONS = {"P100": 60, "RTX-3090": 86, "A6000": 86, "H100": 90, "H200": 90, "B200": 100}
"""Kinds whose NVLinks are not as fast as those of most, with their compute capability."""
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
    kind = wanted.kind or UNKNOWN_KIND
    wires: dict[tuple[int, int], Wire] = {}
    classes: dict[str, Wire] = {}
    for source, row in enumerate(gpus):
        if row not in rows:
            raise InputError(f"the row of {row} is missing", where=where, hint=_HINT)
        line, cells = rows[row]
        for target, column in enumerate(gpus):
            if source != target:
                found = _class(cells[columns.index(column)], f"{where}:{line}")
                wires[source, target] = classes[found] = _wire(found, wanted.links, _GENERATIONS.get(kind))
    notes = [*class_notes(classes, wanted.links), *kind_notes({kind}, said=wanted.kind is not None)]
    if any(_MIG.match(line) for line in _lines(text)):
        notes.append("Some GPUs are cut into MIG devices: each is taken as one whole GPU all the same.")
    interface, net_notes = _network(len(columns) - len(gpus), len(gpus), wanted)
    notes += net_notes
    return repeat_host(
        name, [kind] * len(gpus), wires, wanted, where=where, between=None, interface=interface, assumptions=notes
    )


def _network(num_nics: int, num_gpus: int, wanted: Wanted) -> tuple[float | None, list[str]]:
    """What the devices of a host share, if they share it, and what to say of it."""
    if wanted.between is None:
        if not num_nics:
            return None, []
        unsaid = f"The text does not say how fast its {counted(num_nics, 'network interface')} can be"
        return None, [f'{unsaid}: for several such hosts, say what joins them (--hosts 4 --between "12 GB/s, 15 us").']
    if (wanted.num_hosts or 1) == 1 or num_gpus == 1:
        return None, []
    if not num_nics:
        return None, ["The text shows no network interface: each GPU is taken to have one to itself."]
    note = sharing_note(num_nics, num_gpus)
    if num_nics >= num_gpus:
        return None, [note]
    total = num_nics * wanted.between.bandwidth
    each = "it" if num_nics == 1 else "each of them"
    return total, [f"{note[:-1]}; what --between says is taken for {each}, {show_rate(total)} in all."]


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


def _class(cell: str, where: str) -> str:
    match = _NVLINKS.match(cell)
    if match and 1 <= int(match[1]) <= MAX_LINKS_OF_A_GPU:
        return f"NV{int(match[1])}"
    name = _OLD_NAMES.get(cell, cell)
    if name not in _CLASSES:
        known = ", ".join(("NV1, NV2, ...", *_CLASSES))
        raise InputError(f"{cell[:40]!r} is no class of links", where=where, hint=f"Known are {known}.")
    return name


def _wire(name: str, links: LinkTypes, sm: int | None) -> Wire:
    match = _NVLINKS.match(name)
    return links.nvlinks(int(match[1]), sm) if match else links.wire(name)
