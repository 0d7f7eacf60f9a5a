"""Matrices of bandwidths."""

import pytest

from penstock.cluster.topology.csv_matrix import looks_like_csv, parse_csv
from penstock.cluster.topology.options import ImportOptions
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError
from tests.support.topology_texts import MATRIX, MATRIX_WITH_UNITS


def parse(text: str) -> Cluster:
    return parse_csv(text, name="m", where="m.csv", options=ImportOptions(kind="T4"))


def test_unit_in_the_corner() -> None:
    cluster = parse(MATRIX)
    assert [(device.name, device.host) for device in cluster.devices] == [
        ("alpha.0", "alpha"),
        ("alpha.1", "alpha"),
        ("beta.0", "beta"),
    ]
    assert cluster.bandwidth[0, 1:].tolist() == [50e9, 1.2e9]
    assert cluster.bandwidth[1, 0] == 48e9
    assert cluster.bandwidth[2, 1] == 1.1e9


def test_units_in_the_cells() -> None:
    cluster = parse(MATRIX_WITH_UNITS)
    assert [host.name for host in cluster.hosts] == ["h0"]
    assert cluster.hosts[0].inside == Wire(bandwidth=25e9, latency_s=5e-6)
    assert cluster.links[0].wire == Wire(bandwidth=1.25e9)


def test_one_device() -> None:
    assert parse("GB/s,a\na,\n").num_devices == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no matrix"),
        ("GB/s,a,b\na,,1\n", "1 rows, 2 columns"),
        ("GB/s,a,b\na,,1\nc,1,\n", "'c' is the first to differ"),
        ("GB/s,a,a\na,,1\na,1,\n", "duplicate"),
        ("GB/s,a,b\na,,1,2\nb,1,\n", "has 3 cells for 2 columns"),
        (",a,b\na,,1\nb,1,\n", "m.csv:2, column 3: '1' has no unit"),
        ("GB/s,a,b\na,,\nb,1,\n", "m.csv:2, column 3: the bandwidth is missing"),
        ("GB/s,a,b\na,,0\nb,1,\n", "must be positive"),
        ("GB/s,a,b\na,,fast\nb,1,\n", "'fast' is not a quantity"),
        ('GB/s,a,b\na,,"1\nb,1,\n', "broken CSV"),
    ],
)
def test_invalid_inputs(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_looks_like() -> None:
    assert looks_like_csv(MATRIX)
    assert looks_like_csv(MATRIX_WITH_UNITS)
    # A comma between quotes is part of a cell.
    assert looks_like_csv(',a,b\na,,"25 GB/s, 5 us"\nb,1 GB/s,\n')
    assert not looks_like_csv("hosts = 2\nkind = 'x'\n")
