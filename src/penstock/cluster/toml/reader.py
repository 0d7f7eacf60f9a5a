"""Reader of cluster files in TOML (docs/clusters.md): the short form, device by device, or a combination."""

import re
import tomllib
from datetime import datetime
from pathlib import Path

from penstock import io
from penstock.cluster.declaration import (
    ClusterDeclaration,
    DeviceDeclaration,
    HostDeclaration,
    LinkDeclaration,
    complete,
)
from penstock.cluster.provenance import ProbeRecord
from penstock.cluster.toml.table import Table
from penstock.cluster.types import Cluster
from penstock.errors import InputError
from penstock.profile import MeasuredAllReduce

_TOP_KEYS = (
    "name", "hosts", "devices_per_host", "kind", "memory", "speed", "inside", "between", "shared_interface",
    "assumptions", "probe", "host", "device", "link", "all_reduce",
)  # fmt: skip
_HOST_KEYS = ("name", "devices", "kind", "memory", "speed", "inside", "shared_interface")
_DEVICE_KEYS = ("name", "host", "kind", "memory", "speed")
_LINK_KEYS = ("between", "from", "to", "wire")
_ALL_REDUCE_KEYS = ("devices", "bytes", "seconds")
_PROBE_KEYS = ("date", "backend", "rounds", "residuals")

_TOP_LEVEL = "at the top of the file, before the first [[host]], [[device]] or [[link]]"
_FROM_TOP = dict.fromkeys(("hosts", "devices_per_host", "between", "assumptions"), _TOP_LEVEL)
_FROM_HOST = dict.fromkeys(("inside", "shared_interface"), "to a [[host]], or " + _TOP_LEVEL)
_FROM_LINK = dict.fromkeys(("from", "to", "wire"), "to a [[link]]")

_POSITION = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)\Z", re.DOTALL)


def read_cluster(path: str | Path) -> Cluster:
    """Read a TOML file. A cluster without a name gets the name of the file.

    Raises:
        FileError: The file cannot be read.
        InputError: The contents are invalid.
    """
    return parse_cluster(io.read_text(path), where=str(path))


def parse_cluster(text: str, *, where: str) -> Cluster:
    """Parse a TOML text.

    Args:
        text: The TOML document.
        where: Name of the file, for errors.

    Raises:
        InputError: The TOML is broken, a key is unknown, or a value is invalid or missing.

    Example:
        >>> cluster = parse_cluster('''
        ... hosts = 2
        ... devices_per_host = 4
        ... kind = "A100-40"
        ... inside = "100 GB/s, 5 us"
        ... between = "1.25 GB/s, 30 us"
        ... ''', where="two.toml")
        >>> cluster.name, cluster.num_devices, cluster.devices[5].name
        ('two', 8, 'h1.d1')
    """
    top = Table(values=_parse_toml(text, where), path="", where=where)
    return complete(_declaration(top))


def _parse_toml(text: str, where: str) -> dict[str, object]:
    try:
        text.encode("utf-8")
        return tomllib.loads(text.removeprefix("\ufeff"))  # some editors write a byte order mark
    except UnicodeEncodeError:
        raise InputError("the text has characters that cannot be encoded as UTF-8", where=where) from None
    except RecursionError:
        hint = "Check that this is the right file."
        raise InputError("nested too deeply", where=where, hint=hint) from None
    except ValueError as error:
        # tomllib reports the position in the message only; a number with too many digits has no position.
        match = _POSITION.match(str(error))
        if match is None:
            raise InputError(f"broken TOML: {str(error).partition(';')[0]}", where=where) from None
        what, line, column = match.groups()
        data = text.encode("utf-8")
        position = f"{line}:{column}" if line else io.line_and_column(data, len(data))
        hint = 'Write `key = value`, with strings in quotes: inside = "25 GB/s".'
        raise InputError(f"broken TOML: {what[:200]}", where=f"{where}:{position}", hint=hint) from None


def _declaration(top: Table) -> ClusterDeclaration:
    top.refuse_unknown(_TOP_KEYS, _FROM_LINK | {"devices": "to a [[host]]; at the top it is 'devices_per_host'"})
    name = top.text("name")
    return ClusterDeclaration(
        where=top.where,
        name=name if name is not None else Path(top.where).stem or "cluster",
        num_hosts=top.count("hosts", least=1),
        devices_per_host=top.count("devices_per_host", least=1),
        traits=top.traits(),
        inside=top.wire("inside"),
        between=top.wire("between"),
        interface=top.interface("shared_interface"),
        hosts=tuple(_host(table) for table in top.tables("host")),
        devices=tuple(_device(table) for table in top.tables("device")),
        links=tuple(link for table in top.tables("link") for link in _links(table)),
        assumptions=top.strings("assumptions"),
        probed=_probed(top),
        all_reduces=tuple(_all_reduce(table) for table in top.tables("all_reduce")),
    )


def _all_reduce(table: Table) -> MeasuredAllReduce:
    table.refuse_unknown(_ALL_REDUCE_KEYS, _FROM_TOP | _FROM_HOST | _FROM_LINK)
    try:
        return MeasuredAllReduce(
            num_devices=table.count("devices", least=2) or 0,
            num_bytes=table.numbers("bytes"),
            seconds=table.numbers("seconds"),
        )
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        hint = "Write devices = 4, and as many ascending bytes as seconds."
        raise InputError(str(error), where=table.where and f"{table.where}, at {table.path}", hint=hint) from None


def _probed(top: Table) -> ProbeRecord | None:
    table = top.table("probe")
    if table is None:
        return None
    table.refuse_unknown(_PROBE_KEYS, _FROM_TOP | _FROM_HOST | _FROM_LINK)
    date = table.values.get("date")
    if not isinstance(date, datetime) or date.tzinfo is None or not 2000 <= date.year < 9999:
        hint = "Write the time of the probe with its time zone, such as date = 2026-11-16T08:00:00Z."
        what = "date must be a date with time and time zone, in the year 2000 or later"
        raise InputError(what, where=table.at("date"), hint=hint)
    return ProbeRecord(
        date=date,
        backend=table.needed_label("backend", 'Name the backend of the measurement, such as backend = "gloo".'),
        rounds=table.count("rounds", least=0) or 0,
        residuals=table.matrix("residuals"),
    )


def _host(table: Table) -> HostDeclaration:
    table.refuse_unknown(_HOST_KEYS, _FROM_TOP | _FROM_LINK)
    return HostDeclaration(
        path=table.path,
        name=table.needed_label("name", 'Give the host a name, such as name = "alpha".'),
        num_devices=table.count("devices", least=0),
        traits=table.traits(),
        inside=table.wire("inside"),
        interface=table.interface("shared_interface"),
    )


def _device(table: Table) -> DeviceDeclaration:
    table.refuse_unknown(_DEVICE_KEYS, _FROM_TOP | _FROM_HOST | _FROM_LINK)
    return DeviceDeclaration(
        path=table.path,
        name=table.needed_label("name", 'Give the device a name, such as name = "alpha.d0".'),
        host=table.label("host"),
        traits=table.traits(),
    )


def _links(table: Table) -> list[LinkDeclaration]:
    table.refuse_unknown(_LINK_KEYS, _FROM_TOP | _FROM_HOST)
    wire = table.wire("wire")
    if wire is None:
        raise InputError("wire is missing", where=table.at("wire"), hint='Write wire = "25 GB/s, 5 us".')
    if "between" not in table.values:
        hint = 'Write from = "..." and to = "...", or between = ["...", "..."] for both directions.'
        source, target = table.needed_label("from", hint), table.needed_label("to", hint)
        keys = table.key("from"), table.key("to")
        return [LinkDeclaration(source_key=keys[0], source=source, target_key=keys[1], target=target, wire=wire)]
    for name in ("from", "to"):
        if name in table.values:
            hint = "Use `between` for both directions, or `from` and `to` for one."
            raise InputError(f"{name} and between are mutually exclusive", where=table.at(name), hint=hint)
    ends = table.strings("between")
    if len(ends) != 2:
        hint = 'Write between = ["...", "..."].'
        raise InputError(f"between must name two devices, not {len(ends)}", where=table.at("between"), hint=hint)
    keys = f"{table.key('between')}[0]", f"{table.key('between')}[1]"
    return [
        LinkDeclaration(source_key=keys[a], source=ends[a], target_key=keys[b], target=ends[b], wire=wire)
        for a, b in ((0, 1), (1, 0))
    ]
