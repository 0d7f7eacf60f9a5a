"""A matrix of bandwidths as CSV: names in the first row and column, the unit in the corner or in every cell.

GB/s,a.0,a.1,b.0
a.0,,50,1.2
a.1,50,,1.2
b.0,1.2,1.2,
"""

import csv
import io

from penstock.cluster.from_wires import assemble
from penstock.cluster.toml import parse_wire
from penstock.cluster.topology.options import UNKNOWN_KIND, Wanted, check_size, kind_notes, make_device
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError

_SEPARATORS = ",;\t|"
_MAX_ROWS = 2048
_HINT = "The first row and the first column are names, the corner may be the unit (GB/s), each cell is a bandwidth."


def looks_like_csv(text: str) -> bool:
    """Whether the first two rows have as many cells, separated by something plain."""
    lines = [line for line in text.splitlines() if line.strip()][:2]
    return len(lines) == 2 and any(1 < _num_cells(lines[0], mark) == _num_cells(lines[1], mark) for mark in _SEPARATORS)


def _num_cells(line: str, mark: str) -> int:
    """A mark between quotes separates nothing."""
    try:
        return len(next(csv.reader([line], delimiter=mark)))
    except csv.Error:
        return 0


def parse_csv(text: str, *, name: str, where: str, wanted: Wanted) -> Cluster:
    r"""The cluster of a matrix: row to column. Names such as alpha.0 or alpha:0 are devices of the host alpha.

    >>> text = "GB/s,a.0,a.1,b.0\na.0,,50,1.2\na.1,50,,1.2\nb.0,1.2,1.2,\n"
    >>> cluster = parse_csv(text, name="three", where="m.csv", wanted=Wanted(kind="T4"))
    >>> [host.name for host in cluster.hosts], cluster.between.bandwidth
    (['a', 'b'], 1200000000.0)
    """
    wanted.refuse("a matrix", "num_hosts", "devices_per_host", "between", "nodes")
    rows = _rows(text, where)
    names, unit = [cell.strip() for cell in rows[0][1][1:]], rows[0][1][0].strip()
    check_size(len(names), where, "Take a part of it.")
    _check_names(names, [cells[0].strip() for _, cells in rows[1:]], where)
    wires: dict[tuple[int, int], Wire] = {}
    for source, (line, cells) in enumerate(rows[1:]):
        if len(cells) != len(names) + 1:
            what = f"the row of {names[source]!r} has {len(cells) - 1} cells for {len(names)} columns"
            raise InputError(what, where=f"{where}:{line}", hint=_HINT)
        for target, cell in enumerate(cells[1:]):
            if source != target:
                wires[source, target] = _wire(cell.strip(), unit, f"{where}:{line}, column {target + 2}")
    kind = wanted.kind or UNKNOWN_KIND
    devices = [make_device(name, host, kind) for name, host in zip(names, _hosts(names), strict=True)]
    notes = kind_notes({kind}, said=wanted.kind is not None)
    if all(wire.latency_s == 0 for wire in wires.values()):
        notes.append("The matrix gives no latencies: none (0 s) is taken.")
    return assemble(name, devices, wires, assumptions=notes)


def _rows(text: str, where: str) -> list[tuple[int, list[str]]]:
    """The rows that are not empty, with their lines."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    mark = max(_SEPARATORS, key=first.count)
    try:
        reader = csv.reader(io.StringIO(text.removeprefix("\ufeff")), delimiter=mark, strict=True)
        rows = []
        for cells in reader:
            if any(cell.strip() for cell in cells):
                rows.append((reader.line_num, cells))
            if len(rows) > _MAX_ROWS:
                raise InputError(f"more than {_MAX_ROWS:,} rows", where=where, hint="Take a part of it.")
    except csv.Error as error:
        raise InputError(f"broken CSV: {error}", where=where, hint=_HINT) from None
    if len(rows) < 2:
        raise InputError("there is no matrix in it", where=where, hint=_HINT)
    return rows


def _check_names(columns: list[str], rows: list[str], where: str) -> None:
    if columns != rows:
        odd = next((row for row, column in zip(rows, columns, strict=False) if row != column), "")
        shown = f": {odd[:40]!r} is the first to differ" if odd else f": {len(rows)} rows, {len(columns)} columns"
        raise InputError(f"rows and columns must have the same names in the same order{shown}", where=where, hint=_HINT)
    if not all(columns) or len(set(columns)) < len(columns):
        raise InputError("a name is empty or there twice", where=where, hint=_HINT)


def _wire(cell: str, unit: str, where: str) -> Wire:
    if not cell:
        raise InputError("the bandwidth is missing", where=where, hint="Only the diagonal may be empty.")
    bare = cell.replace(".", "", 1).isdecimal()
    if bare and not unit:
        raise InputError(
            f"{cell[:40]!r} has no unit", where=where, hint="Write it in the cell, or in the corner: GB/s."
        )
    return parse_wire(f"{cell} {unit}" if bare else cell, key="cell", where=where).wire


def _hosts(names: list[str]) -> list[str]:
    """The host of each name: what stands before the last . or : or /, if all have one; else one host for all."""
    for mark in ".:/":
        if all(name.rpartition(mark)[0] for name in names):
            return [name.rpartition(mark)[0] for name in names]
    return ["h0"] * len(names)
