"""The table of classes, and what a user puts in its place."""

import pytest

from penstock.cluster.topology.link_types import LINK_TYPES, LinkTypes, parse_link_types
from penstock.cluster.types import Wire
from penstock.errors import InputError
from tests.support.paths import DOCS


def test_every_class_says_where_its_figure_comes_from() -> None:
    assert len({item.name for item in LINK_TYPES}) == len(LINK_TYPES)
    assert all(item.source for item in LINK_TYPES)


def test_the_table_is_in_the_docs() -> None:
    page = (DOCS / "clusters.md").read_text(encoding="utf-8")
    for item in LINK_TYPES:
        assert f"| `{item.name}` | {item.wire.bandwidth / 1e9:g} GB/s |" in page


def test_generations_of_nvlink() -> None:
    links = LinkTypes()
    assert links.nvlinks(2).bandwidth == 40e9
    assert links.nvlinks(18, 90).bandwidth == pytest.approx(370.8e9)
    assert links.nvlinks(18, 103).bandwidth == pytest.approx(721.8e9)
    assert links.nvlinks(12, 80).bandwidth == 240e9


def test_given_ones_come_first() -> None:
    links = parse_link_types(["NV=21GB/s", "NV4=100GB/s", "PIX = 24 GB/s, 3 us"])
    assert links.nvlinks(4, 90).bandwidth == 100e9
    assert links.nvlinks(2, 90).bandwidth == 42e9
    assert links.wire("PIX") == Wire(bandwidth=24e9, latency_s=3e-6)
    # A latency that is not given stays what it is.
    assert links.nvlinks(4).latency_s == LinkTypes().wire("NV").latency_s


@pytest.mark.parametrize("text", ["NV4", "=1GB/s", "NVX=1GB/s", "NV0=1GB/s", "PIX=fast", "PIX=1", "PIX="])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_link_types([text])
    assert caught.value.where.startswith("--link")
