"""Warnings about a cluster, and the date of a probe."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from penstock.cluster.diagnostics import age_warning, cluster_warnings
from penstock.cluster.provenance import ProbeRecord
from penstock.cluster.subset import select_devices
from penstock.cluster.toml.reader import parse_cluster
from penstock.cluster.toml.writer import write_cluster
from penstock.errors import InputError

BASE = 'hosts = 3\nkind = "T4"\nmemory = "16 GB"\nspeed = 1.0\nbetween = "1 GB/s, 1 us"\ninside = "1 GB/s, 1 us"\n'
PROBE = """
[probe]
date = 2026-01-31T12:00:00+02:00
backend = "gloo"
rounds = 4
residuals = [[0.0, 0.01, 0.02], [0.03, 0.0, 0.04], [0.5, 0.06, 0.0]]
"""


def link(source: int, target: int, rate: str) -> str:
    return f'[[link]]\nfrom = "h{source}.d0"\nto = "h{target}.d0"\nwire = "{rate}, 1 us"\n'


def test_uneven_links() -> None:
    assert cluster_warnings(parse_cluster(BASE, where="c")) == []
    assert cluster_warnings(parse_cluster(BASE + link(0, 1, "1.2 GB/s"), where="c")) == []
    (text,) = cluster_warnings(parse_cluster(BASE + link(0, 1, "1.3 GB/s") + link(2, 1, "0.7 GB/s"), where="c"))
    assert "h0.d0 to h1.d0 1.30 GB/s, back 1.00 GB/s" in text
    # The measurement error explains this difference: 1.25 * (1 + 2 * 0.5) = 2.5.
    odd = parse_cluster(BASE + PROBE + link(0, 2, "2.4 GB/s") + link(1, 2, "1.5 GB/s"), where="c")
    (text,) = cluster_warnings(odd)
    assert "h1.d0 to h2.d0" in text
    assert "h0.d0" not in text


def test_slow_devices() -> None:
    device = '[[device]]\nname = "slow"\nhost = "h0"\nspeed = 0.8\n[[device]]\nname = "other"\nhost = "h1"\n'
    assert cluster_warnings(parse_cluster(BASE + device, where="c")) == ["slow has 80% of the speed of the fastest T4"]


def test_age() -> None:
    cluster = parse_cluster(BASE + PROBE, where="old.toml")
    probed = datetime(2026, 1, 31, 10, tzinfo=UTC)
    assert age_warning(cluster, probed + timedelta(days=31)) is None
    text = age_warning(cluster, probed + timedelta(days=40))
    assert text is not None
    assert "40 days ago (2026-01-31)" in text
    assert age_warning(parse_cluster(BASE, where="c"), probed) is None


def test_a_probe_is_kept() -> None:
    cluster = parse_cluster(BASE + PROBE, where="c.toml")
    assert isinstance(cluster.probed, ProbeRecord)
    again = parse_cluster(write_cluster(cluster), where="again.toml")
    assert again == msgspec.structs.replace(cluster, name="c")
    # It is not part of the digest.
    assert cluster.digest == parse_cluster(BASE, where="c").digest
    part = select_devices(cluster, [0, 2])
    assert isinstance(part.probed, ProbeRecord)
    assert part.probed.residuals == ((0.0, 0.02), (0.5, 0.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("2026-01-31T12:00:00+02:00", "2026-01-31"), "a date with time and time zone"),
        (("2026-01-31T12:00:00+02:00", '"soon"'), "a date with time and time zone"),
        (("2026-01-31T12:00:00+02:00", "0001-01-01T00:00:00+02:00"), "in the year 2000 or later"),
        (('backend = "gloo"', ""), "backend is missing"),
        (("[0.5, 0.06, 0.0]", "[0.5, 0.06]"), "lists of numbers"),
        (("0.06", "-1"), "must be numbers from 0"),
        (("0.06", "nan"), "must be numbers from 0"),
        (("0.06", "'x'"), "must be numbers from 0"),
        (("[[0.0, 0.01, 0.02], [0.03, 0.0, 0.04], [0.5, 0.06, 0.0]]", "[[0.0]]"), "1 rows for 3 devices"),
        (("rounds", "turns"), "unknown key 'turns'"),
        (("[probe]", "probe = 3\n[other]"), "probe"),
    ],
)
def test_invalid_inputs(change: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster(BASE + PROBE.replace(*change), where="c.toml")
    assert message in str(caught.value)
    assert caught.value.where.startswith("c.toml")
