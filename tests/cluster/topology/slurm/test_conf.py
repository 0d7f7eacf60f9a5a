"""Slurm's topology.conf and topology.yaml: trees, blocks, and invalid files."""

import pytest

from penstock.cluster.topology.link_types import parse_link_types
from penstock.cluster.topology.options import ImportOptions
from penstock.cluster.topology.slurm.conf import looks_like_slurm, parse_slurm
from penstock.cluster.topology.slurm.yaml import looks_like_slurm_yaml, parse_slurm_yaml
from penstock.cluster.types import Cluster
from penstock.errors import InputError
from tests.support.topology_texts import EVERY, SLURM_BLOCKS, SLURM_TREE, SLURM_YAML, SLURM_YAML_BLOCKS

LINKS = parse_link_types(["SW1=40GB/s", "SW2=20GB/s", "SW3=10GB/s", "BLOCK=400GB/s", "SYS=100GB/s"])


def conf(text: str, **given: object) -> Cluster:
    return parse_slurm(text, name="c", where="topology.conf", options=ImportOptions(links=LINKS, **given))  # type: ignore[arg-type]


def yaml(text: str, **given: object) -> Cluster:
    return parse_slurm_yaml(text, name="c", where="topology.yaml", options=ImportOptions(links=LINKS, **given))  # type: ignore[arg-type]


def test_tree() -> None:
    cluster = conf(SLURM_TREE, kind="H100")
    names = [device.name for device in cluster.devices]
    assert names == [
        f"{node}.d0" for node in ("node01", "node02", "node03", "node04", "node05", "node09", "big1", "big2")
    ]
    rates = cluster.bandwidth / 1e9
    assert rates[0, 1:].tolist() == [40, 40, 20, 20, 20, 10, 10]
    assert rates[6, [0, 5, 7]].tolist() == [10, 10, 40]
    assert any("LinkSpeed" in note for note in cluster.assumptions)


def test_by_default_a_tree_is_one_network() -> None:
    cluster = parse_slurm(SLURM_TREE, name="c", where="t", options=ImportOptions())
    assert (cluster.links, cluster.between.bandwidth) == ((), 12e9)


def test_blocks() -> None:
    rates = conf(SLURM_BLOCKS).bandwidth / 1e9
    assert rates[0, [1, 3, 4, 7]].tolist() == [400, 400, 20, 20]


def test_nodes_and_devices() -> None:
    cluster = conf(SLURM_TREE, nodes="big1,node[01,04]", devices_per_host=2)
    assert [device.name for device in cluster.devices[:3]] == ["big1.d0", "big1.d1", "node01.d0"]
    assert cluster.num_devices == 6
    assert cluster.bandwidth[2, [3, 4, 0]].tolist() == [100e9, 20e9, 10e9]
    with pytest.raises(InputError, match="node node77 does not exist"):
        conf(SLURM_TREE, nodes="node77")


def test_yaml_takes_the_default() -> None:
    cluster = yaml(SLURM_YAML)
    assert [host.name for host in cluster.hosts] == ["node01", "node02", "node03", "node04"]
    assert cluster.bandwidth[0, 1:].tolist() == [40e9, 20e9, 20e9]
    assert any("'tree_one' is used" in note for note in cluster.assumptions)


def test_yaml_blocks() -> None:
    assert yaml(SLURM_YAML_BLOCKS).bandwidth[0, 1:].tolist() == [400e9, 20e9, 20e9]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no nodes"),
        ("Nodes=a", "names neither a switch"),
        ("SwitchName=a Nodes=n1 Colour=red", "unknown key 'Colour'"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "topology.conf:2: duplicate switch 'a'"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1", "below both 'a' and 'b'"),
        ("SwitchName=a Switches=b", "switch 'b' does not exist"),
        ("SwitchName=a Switches=b Nodes=n1\nSwitchName=b Switches=a Nodes=n2", "form a cycle"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2", "'a' and 'b' are not connected"),
        # Blocks are connected with each other, but not with a switch.
        ("BlockName=a Nodes=n1\nSwitchName=b Nodes=n2", "'a' and 'b' are not connected"),
        ("SwitchName=b Nodes=n2\nBlockName=a Nodes=n1", "'b' and 'a' are not connected"),
        ("SwitchName=a Nodes=n[1-5000]", "exceeds the limit of 1,024"),
        ("SwitchName=a Nodes=n[1-", "is not a host list"),
        ("SwitchName=a Nodes=n1 and more", "'and more' is not KEY=VALUE"),
    ],
)
def test_invalid_conf(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        conf(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topology: a", "expected a list"),
        ("- topology: a\n  flat: true\n", "neither a tree nor blocks"),
        ("- topology: a\n  ring: true\n", "topology.yaml:2: unknown key 'ring'"),
        ("- topology: a\n  tree: yes\n", "expected a map"),
        ("- topology: a\n  tree:\n    nodes: n1\n", "switches is missing"),
        ("- topology: a\n  tree:\n    switches:\n    - nodes: n1\n", "a switch has no name"),
        ("- topology: a\n  tree:\n    switches:\n    - switch: s\n      speed: 3\n", "unknown key 'speed'"),
    ],
)
def test_invalid_yaml(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        yaml(text)
    assert message in str(caught.value)


def test_options_that_do_not_apply() -> None:
    with pytest.raises(InputError, match="--hosts does not apply to"):
        conf(SLURM_TREE, num_hosts=2)


def test_looks_like() -> None:
    assert looks_like_slurm(SLURM_TREE)
    assert looks_like_slurm(SLURM_BLOCKS)
    assert looks_like_slurm_yaml(SLURM_YAML)
    assert looks_like_slurm_yaml(SLURM_YAML_BLOCKS)
    others = [text for name, texts in EVERY.items() if name != "slurm" for text in texts]
    assert not any(looks_like_slurm(text) or looks_like_slurm_yaml(text) for text in others)
