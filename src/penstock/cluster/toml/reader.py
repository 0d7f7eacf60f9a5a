"""Reading cluster files in TOML (docs/clusters.md): the five-line form, device by device, or both together."""

import re
import tomllib
from datetime import datetime
from pathlib import Path

from penstock import io
from penstock.cluster.declaration import WrittenCluster, WrittenDevice, WrittenHost, WrittenLink, complete
from penstock.cluster.provenance import Probed
from penstock.cluster.toml.table import Table
from penstock.cluster.types import Cluster
from penstock.errors import InputError

_TOP_KEYS = (
    "name", "hosts", "devices_per_host", "kind", "memory", "speed", "inside", "between", "shared_interface",
    "assumptions", "probe", "host", "device", "link",
)  # fmt: skip
_HOST_KEYS = ("name", "devices", "kind", "memory", "speed", "inside", "shared_interface")
_DEVICE_KEYS = ("name", "host", "kind", "memory", "speed")
_LINK_KEYS = ("between", "from", "to", "wire")
_PROBE_KEYS = ("date", "backend", "rounds", "residuals")

_ON_TOP = "at the top of the file, before the first [[host]], [[device]] or [[link]]"
_FROM_TOP = dict.fromkeys(("hosts", "devices_per_host", "between", "assumptions"), _ON_TOP)
_FROM_HOST = dict.fromkeys(("inside", "shared_interface"), "to a [[host]], or " + _ON_TOP)
_FROM_LINK = dict.fromkeys(("from", "to", "wire"), "to a [[link]]")

_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)\Z", re.DOTALL)


def read_cluster(path: str | Path) -> Cluster:
    """The cluster of a TOML file. Without a name in the file it is named after the file."""
    return parse_cluster(io.read_text(path), where=str(path))


def parse_cluster(text: str, *, where: str) -> Cluster:
    """The cluster of a TOML text; `where` names its file in errors.

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
    return complete(_written(top))


def _parse_toml(text: str, where: str) -> dict[str, object]:
    try:
        text.encode("utf-8")
        return tomllib.loads(text.removeprefix("\ufeff"))  # some editors begin every file with this mark
    except UnicodeEncodeError:
        raise InputError("the text has characters that UTF-8 does not know", where=where) from None
    except RecursionError:
        raise InputError("nested too deeply", where=where, hint="Is it the right file?") from None
    except ValueError as error:
        # tomllib tells the place in words only; a number with too many digits comes without a place.
        match = _PLACE.match(str(error))
        if match is None:
            raise InputError(f"broken TOML: {str(error).partition(';')[0]}", where=where) from None
        what, line, column = match.groups()
        data = text.encode("utf-8")
        place = f"{line}:{column}" if line else io.line_and_column(data, len(data))
        hint = 'A line is `key = value`, texts are in quotes: inside = "25 GB/s".'
        raise InputError(f"broken TOML: {what[:200]}", where=f"{where}:{place}", hint=hint) from None


def _written(top: Table) -> WrittenCluster:
    top.refuse_unknown(_TOP_KEYS, _FROM_LINK | {"devices": "to a [[host]]; at the top it is 'devices_per_host'"})
    given_name = top.text("name")
    return WrittenCluster(
        where=top.where,
        name=given_name if given_name is not None else Path(top.where).stem or "cluster",
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
    )


def _probed(top: Table) -> Probed | None:
    table = top.table("probe")
    if table is None:
        return None
    table.refuse_unknown(_PROBE_KEYS, _FROM_TOP | _FROM_HOST | _FROM_LINK)
    date = table.values.get("date")
    if not isinstance(date, datetime) or date.tzinfo is None or not 2000 <= date.year < 9999:
        hint = "Write the time of the probe with its zone, such as date = 2026-11-16T08:00:00Z."
        raise InputError("date must be a date with time and zone, from 2000 on", where=table.at("date"), hint=hint)
    return Probed(
        date=date,
        backend=table.needed_label("backend", 'Name what was measured with, such as backend = "gloo".'),
        rounds=table.count("rounds", least=0) or 0,
        residuals=table.matrix("residuals"),
    )


def _host(table: Table) -> WrittenHost:
    table.refuse_unknown(_HOST_KEYS, _FROM_TOP | _FROM_LINK)
    return WrittenHost(
        path=table.path,
        name=table.needed_label("name", 'Give the host a name, such as name = "alpha".'),
        num_devices=table.count("devices", least=0),
        traits=table.traits(),
        inside=table.wire("inside"),
        interface=table.interface("shared_interface"),
    )


def _device(table: Table) -> WrittenDevice:
    table.refuse_unknown(_DEVICE_KEYS, _FROM_TOP | _FROM_HOST | _FROM_LINK)
    return WrittenDevice(
        path=table.path,
        name=table.needed_label("name", 'Give the device a name, such as name = "alpha.d0".'),
        host=table.label("host"),
        traits=table.traits(),
    )


def _links(table: Table) -> list[WrittenLink]:
    table.refuse_unknown(_LINK_KEYS, _FROM_TOP | _FROM_HOST)
    wire = table.wire("wire")
    if wire is None:
        raise InputError("wire is missing", where=table.at("wire"), hint='Write wire = "25 GB/s, 5 us".')
    if "between" not in table.values:
        hint = 'Write from = "..." and to = "...", or between = ["...", "..."] for both directions.'
        source, target = table.needed_label("from", hint), table.needed_label("to", hint)
        keys = table.key("from"), table.key("to")
        return [WrittenLink(source_key=keys[0], source=source, target_key=keys[1], target=target, wire=wire)]
    for name in ("from", "to"):
        if name in table.values:
            hint = "`between` is both directions, `from` and `to` is one: keep one of them."
            raise InputError(f"{name} and between exclude each other", where=table.at(name), hint=hint)
    ends = table.strings("between")
    if len(ends) != 2:
        hint = 'Write between = ["...", "..."].'
        raise InputError(f"a link is between two devices, not {len(ends)}", where=table.at("between"), hint=hint)
    keys = f"{table.key('between')}[0]", f"{table.key('between')}[1]"
    return [
        WrittenLink(source_key=keys[a], source=ends[a], target_key=keys[b], target=ends[b], wire=wire)
        for a, b in ((0, 1), (1, 0))
    ]
