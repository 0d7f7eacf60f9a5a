"""Reader of a bandwidth matrix in CSV: names in the first row and column, the unit in the corner or in every cell.

GB/s,a.0,a.1,b.0
a.0,,50,1.2
a.1,50,,1.2
b.0,1.2,1.2,
"""

import csv
import io

from penstock.cluster.from_wires import cluster_from_wires
from penstock.cluster.toml import parse_wire
from penstock.cluster.topology.options import UNKNOWN_KIND, ImportOptions, check_size, kind_notes, make_device
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError

_SEPARATORS = ",;\t|"
_MAX_ROWS = 2048
_HINT = "The first row and column are names, the corner may be the unit (GB/s), each other cell is a bandwidth."


def looks_like_csv(text: str) -> bool:
    """Return whether the first two rows have equal numbers of cells, for one of the usual separators."""
    lines = [line for line in text.splitlines() if line.strip()][:2]
    return len(lines) == 2 and any(1 < _num_cells(lines[0], mark) == _num_cells(lines[1], mark) for mark in _SEPARATORS)


def _num_cells(line: str, mark: str) -> int:
    """Count the cells; a separator inside quotes does not separate."""
    try:
        return len(next(csv.reader([line], delimiter=mark)))
    except csv.Error:
        return 0


def parse_csv(text: str, *, name: str, where: str, options: ImportOptions) -> Cluster:
    r"""Parse a matrix of bandwidths from row to column. Names such as alpha.0 or alpha:0 are devices of host alpha.

    >>> text = "GB/s,a.0,a.1,b.0\na.0,,50,1.2\na.1,50,,1.2\nb.0,1.2,1.2,\n"
    >>> cluster = parse_csv(text, name="three", where="m.csv", options=ImportOptions(kind="T4"))
    >>> [host.name for host in cluster.hosts], cluster.between.bandwidth
    (['a', 'b'], 1200000000.0)
    """
    options.refuse("a matrix", "num_hosts", "devices_per_host", "between", "nodes")
    rows = _rows(text, where)
    names, unit = [cell.strip() for cell in rows[0][1][1:]], rows[0][1][0].strip()
    check_size(len(names), where, "Use a part of the matrix.")
    _check_names(names, [cells[0].strip() for _, cells in rows[1:]], where)
    wires: dict[tuple[int, int], Wire] = {}
    for source, (line, cells) in enumerate(rows[1:]):
        if len(cells) != len(names) + 1:
            what = f"the row of {names[source]!r} has {len(cells) - 1} cells for {len(names)} columns"
            raise InputError(what, where=f"{where}:{line}", hint=_HINT)
        for target, cell in enumerate(cells[1:]):
            if source != target:
                wires[source, target] = _wire(cell.strip(), unit, f"{where}:{line}, column {target + 2}")
    kind = options.kind or UNKNOWN_KIND
    devices = [make_device(name, host, kind) for name, host in zip(names, _hosts(names), strict=True)]
    notes = kind_notes({kind}, is_specified=options.kind is not None)
    if all(wire.latency_s == 0 for wire in wires.values()):
        notes.append("The matrix has no latencies: assumed 0 s.")
    return cluster_from_wires(name, devices, wires, assumptions=notes)


def _rows(text: str, where: str) -> list[tuple[int, list[str]]]:
    """Return the rows that are not empty, with their line numbers."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    mark = max(_SEPARATORS, key=first.count)
    try:
        reader = csv.reader(io.StringIO(text.removeprefix("\ufeff")), delimiter=mark, strict=True)
        rows = []
        for cells in reader:
            if any(cell.strip() for cell in cells):
                rows.append((reader.line_num, cells))
            if len(rows) > _MAX_ROWS:
                what = f"the matrix has more than {_MAX_ROWS:,} rows"
                raise InputError(what, where=where, hint="Use a part of the matrix.")
    except csv.Error as error:
        raise InputError(f"broken CSV: {error}", where=where, hint=_HINT) from None
    if len(rows) < 2:
        raise InputError("the file has no matrix", where=where, hint=_HINT)
    return rows


def _check_names(columns: list[str], rows: list[str], where: str) -> None:
    if columns != rows:
        odd = next((row for row, column in zip(rows, columns, strict=False) if row != column), "")
        shown = f": {odd[:40]!r} is the first to differ" if odd else f": {len(rows)} rows, {len(columns)} columns"
        raise InputError(f"rows and columns must have the same names in the same order{shown}", where=where, hint=_HINT)
    if not all(columns) or len(set(columns)) < len(columns):
        raise InputError("a name is empty or duplicate", where=where, hint=_HINT)


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
    """Return the host of each name: the part before the last . or : or /, if all have one; else one host for all."""
    for mark in ".:/":
        if all(name.rpartition(mark)[0] for name in names):
            return [name.rpartition(mark)[0] for name in names]
    return ["h0"] * len(names)
