"""Quantities with units: exact parsing, clear errors, three digits in output."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.units import (
    parse_bytes,
    parse_rate,
    parse_seconds,
    show_bytes,
    show_percent,
    show_rate,
    show_seconds,
)
from tests.support.reach import reach, reaches


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0 B", 0),
        ("40 GB", 40_000_000_000),
        ("40GB", 40_000_000_000),
        ("  1.5 kB ", 1500),
        ("24 GiB", 24 * 2**30),
        ("0.5 MiB", 2**19),
        ("1e3 B", 1000),
        (".5 KB", 500),
        ("9007199254740993 B", 9007199254740993),  # one more than a float can tell
        ("3 TiB", 3 * 2**40),
    ],
)
def test_bytes(text: str, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 s", 2.0),
        ("1.5 ms", 0.0015),
        ("30 us", 3e-05),
        ("30 µs", 3e-05),  # the micro sign
        ("30 μs", 3e-05),  # the Greek letter
        ("7 ns", 7e-09),
        ("2 min", 120.0),
        ("0 s", 0.0),
    ],
)
def test_seconds(text: str, value: float) -> None:
    assert parse_seconds(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("25 GB/s", 25e9),
        ("100 Gbit/s", 12.5e9),
        ("10 Gbps", 1.25e9),
        ("1 GiB/s", 2.0**30),
        ("8 bit/s", 1.0),
        ("800 Mbit/s", 1e8),
    ],
)
def test_rates(text: str, value: float) -> None:
    assert parse_rate(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_bytes, "", "is not a quantity"),
        (parse_bytes, "GB", "is not a quantity"),
        (parse_bytes, "40", "has no unit"),
        (parse_bytes, "40 XB", "unknown unit 'XB'"),
        (parse_bytes, "40 GB/s", "unknown unit 'GB/s'"),
        (parse_bytes, "-1 GB", "must be finite and not negative"),
        (parse_bytes, "1e999 B", "must be finite and not negative"),
        (parse_bytes, "nan B", "is not a quantity"),
        (parse_bytes, "1 2 B", "is not a quantity"),
        (parse_bytes, "1" * 200 + " B", "is not a quantity"),
        (parse_seconds, "5 GB", "unknown unit 'GB'"),
        (parse_seconds, "inf s", "is not a quantity"),
        (parse_rate, "0 GB/s", "must be positive"),
        (parse_rate, "5 GB", "unknown unit 'GB'"),
    ],
)
def test_refused(parse: object, text: str, message: str) -> None:
    assert callable(parse)
    with pytest.raises(InputError, match=message) as caught:
        parse(text, where="cluster.toml:3")
    assert caught.value.where == "cluster.toml:3"


@reaches(bytes=0.01, seconds=0.01, rate=0.01, refused=0.1)
@given(
    st.text()
    | st.from_regex(r"[-+0-9.eE]{1,12} ?[kMGTi]{0,2}(B|bit|bps|s|us|min)?(/s)?", fullmatch=True)
    | st.from_regex(r"[0-9]{1,4}(\.[0-9]{1,3})? ?(([kMGT]i?)?B|[kMGT]?(B|bit)/s|[mun]?s|min)", fullmatch=True)
)
@example("1e308 TB")
@example("9" * 98 + "B")
def test_any_text_parses_or_raises_an_input_error(text: str) -> None:
    for name, parse in (("bytes", parse_bytes), ("seconds", parse_seconds), ("rate", parse_rate)):
        try:
            value = parse(text)
        except InputError:
            reach("refused")
            continue
        assert 0 <= value < math.inf
        reach(name)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1.00 kB"),
        (1000, "1.00 kB"),
        (12_345, "12.3 kB"),
        (123_456, "123 kB"),
        (999_499, "999 kB"),
        (999_600, "1.00 MB"),
        (40e9, "40.0 GB"),
        (5e15, "5,000 TB"),
        (-2e6, "-2.00 MB"),
    ],
)
def test_show_bytes(value: float, text: str) -> None:
    assert show_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 s"), (61, "61.0 s"), (1.234, "1.23 s"), (0.9996, "1.00 s"), (0.0123, "12.3 ms"), (3.4e-10, "0.34 ns")],
)
def test_show_seconds(value: float, text: str) -> None:
    assert show_seconds(value) == text


def test_show_others() -> None:
    assert show_rate(math.inf) == "unlimited"
    assert show_rate(12.5e9) == "12.5 GB/s"
    assert show_percent(0.5) == "50.0 %"
    assert show_percent(0.00049) == "0.0 %"


LARGE = st.floats(1, 1e15) | st.floats(0, 15).map(lambda power: 10.0**power)
SMALL = st.floats(1e-9, 1e6) | st.floats(-9, 6).map(lambda power: 10.0**power)
"""Numbers of every magnitude: of plain floats, few are small."""


@reaches(bytes=0.02, kB=0.02, MB=0.01, GB=0.01, TB=0.02)
@given(LARGE)
def test_formatted_sizes_parse(value: float) -> None:
    assert parse_bytes(show_bytes(value).replace(",", "")) == pytest.approx(value, rel=0.0051, abs=0.51)
    assert parse_rate(show_rate(value).replace(",", "")) == pytest.approx(value, rel=0.0051, abs=0.51)
    unit = show_bytes(value).split(" ")[-1]
    reach("bytes" if unit == "B" else unit)


@reaches(ns=0.02, us=0.02, ms=0.02, s=0.02)
@given(SMALL)
def test_formatted_seconds_parse(value: float) -> None:
    assert parse_seconds(show_seconds(value).replace(",", "")) == pytest.approx(value, rel=0.0051)
    reach(show_seconds(value).split(" ")[-1])
