"""The table of link classes and its overrides."""

import pytest

from penstock.cluster.topology.link_types import LINK_TYPES, LinkTypes, parse_link_types
from penstock.cluster.types import Wire
from penstock.errors import InputError
from tests.support.paths import DOCS


def test_every_class_names_its_source() -> None:
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


def test_overrides_take_precedence() -> None:
    links = parse_link_types(["NV=21GB/s", "NV4=100GB/s", "PIX = 24 GB/s, 3 us"])
    assert links.nvlinks(4, 90).bandwidth == 100e9
    assert links.nvlinks(2, 90).bandwidth == 42e9
    assert links.wire("PIX") == Wire(bandwidth=24e9, latency_s=3e-6)
    # A missing latency keeps its default.
    assert links.nvlinks(4).latency_s == LinkTypes().wire("NV").latency_s


@pytest.mark.parametrize("text", ["NV4", "=1GB/s", "NVX=1GB/s", "NV0=1GB/s", "PIX=fast", "PIX=1", "PIX="])
def test_invalid_inputs(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_link_types([text])
    assert caught.value.where.startswith("--link")
