"""Parsing and formatting of quantities with units: "25 GB/s", "100 Gbit/s", "5 us", "40 GB"."""

import math
import re

from penstock.errors import InputError

_NUMBER = re.compile(r"\s*+([+-]?(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?+)\s*+([A-Za-zµμ/]*+)\s*+\Z")

_BYTES = {
    "B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
}  # fmt: skip
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9, "min": 60.0}
_BITS = {"bit": 0.125, "kbit": 125.0, "Mbit": 125e3, "Gbit": 125e6, "Tbit": 125e9}
_RATES = (
    {f"{name}/s": size for name, size in _BYTES.items()}
    | {f"{name}/s": size for name, size in _BITS.items()}
    | {"kbps": 125.0, "Mbps": 125e3, "Gbps": 125e6, "Tbps": 125e9}
)


def parse_bytes(text: str, *, where: str = "") -> int:
    """Parse a size such as "40 GB", "24 GiB" or "512 MB" to bytes.

    >>> parse_bytes("40 GB")
    40000000000
    """
    value, number, unit = _parse(text, _BYTES, "a size such as '40 GB' or '24 GiB'", where)
    # Whole numbers stay exact: a float has only 53 bits.
    return int(number) * int(_BYTES[unit]) if number.isdecimal() else round(value)


def parse_seconds(text: str, *, where: str = "") -> float:
    """Parse a time such as "5 us", "1.5 ms" or "2 s" to seconds.

    >>> parse_seconds("1.5 ms")
    0.0015
    """
    return _parse(text, _SECONDS, "a time such as '5 us' or '1.5 ms'", where)[0]


def parse_rate(text: str, *, where: str = "") -> float:
    """Parse a bandwidth such as "25 GB/s", "100 Gbit/s" or "10 Gbps" to bytes per second.

    >>> parse_rate("100 Gbit/s")
    12500000000.0
    """
    rate, _, _ = _parse(text, _RATES, "a bandwidth such as '25 GB/s' or '100 Gbit/s'", where)
    if rate <= 0:
        raise InputError(f"bandwidth must be positive, not {text!r}", where=where)
    return rate


def show_bytes(value: float) -> str:
    """Format a size.

    >>> show_bytes(40e9), show_bytes(1536), show_bytes(0)
    ('40.0 GB', '1.54 kB', '0 B')
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= size * 0.9995:
            return f"{_three_digits(value / size)} {unit}"
    return f"{value:.0f} B"


def show_seconds(value: float) -> str:
    """Format a time.

    >>> show_seconds(0.00123), show_seconds(5e-6), show_seconds(0)
    ('1.23 ms', '5.00 us', '0 s')
    """
    if value == 0:
        return "0 s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(value) >= size * 0.9995:
            return f"{_three_digits(value / size)} {unit}"
    return f"{_three_digits(value / 1e-9)} ns"


def show_range(value: float, low: float, high: float) -> str:
    """Format a time with the interval that it lies in.

    >>> show_range(0.522, 0.505, 0.56), show_range(0.98, 0.9, 1.2)
    ('522 ms (505 to 560)', '980 ms (900 ms to 1.20 s)')
    """
    first, middle, last = show_seconds(low), show_seconds(value), show_seconds(high)
    units = {text.partition(" ")[2] for text in (first, middle, last)}
    if len(units) == 1:
        first, last = first.partition(" ")[0], last.partition(" ")[0]
    return f"{middle} ({first} to {last})"


def show_rate(value: float) -> str:
    """Format a bandwidth.

    >>> show_rate(12.5e9)
    '12.5 GB/s'
    """
    return "unlimited" if math.isinf(value) else show_bytes(value) + "/s"


def show_percent(fraction: float) -> str:
    """Format a fraction as a percentage.

    >>> show_percent(0.1234)
    '12.3 %'
    """
    return f"{100 * fraction:.1f} %"


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:,.0f}"


def _parse(text: str, units: dict[str, float], example: str, where: str) -> tuple[float, str, str]:
    match = _NUMBER.match(text) if len(text) < 100 else None
    if match is None:
        raise InputError(f"{text[:60]!r} is not a quantity", where=where, hint=f"Write {example}.")
    number, unit = match.groups()
    if unit not in units:
        known = ", ".join(units)
        what = f"{text!r} has no unit" if not unit else f"unknown unit {unit!r}"
        raise InputError(what, where=where, hint=f"Write {example}; units: {known}.")
    size = units[unit]
    # Below one, divide by the inverse, a whole number: "30 us" is then exactly 3e-05, without a rounding error.
    value = float(number) * size if size >= 1 else float(number) / round(1 / size)
    if value < 0 or not math.isfinite(value):
        raise InputError(f"{text!r} must be finite and not negative", where=where)
    return value, number, unit


def show_count(number: int, noun: str, ending: str = "s") -> str:
    """Format a number with its noun, in the plural where needed.

    >>> show_count(1, "row"), show_count(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{ending}"
