import pytest

from penstock.profile.device_kinds import KINDS, canonical_kind, find_kind, match_kind, relative_speed
from tests.support.paths import DOCS

NAMES = ["H100", "A100-80", "A100-40", "V100-16", "RTX-4090", "RTX-3090", "T4", "L4"]
PAGE = DOCS / "analytic.md"


def test_exactly_the_known_names() -> None:
    assert list(KINDS) == NAMES
    assert all(kind.name == name for name, kind in KINDS.items())


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_plausible(name: str) -> None:
    kind = KINDS[name]
    # Tensor cores are at least twice as fast as plain fp32 on all of these (exactly 2 x on the GeForce cards).
    assert kind.tensor_flops_per_s >= 1.99 * kind.fp32_flops_per_s
    assert 0.3 <= kind.matmul_fraction < 1
    assert 0.7 <= kind.bandwidth_fraction < 1
    assert 1e-6 <= kind.launch_s <= 20e-6
    # A roofline needs its ridge above what element-wise kernels do: more than 5 operations for every byte in fp32.
    assert kind.fp32_flops_per_s / kind.memory_bandwidth > 5


def test_dense_rates_not_sparse_ones() -> None:
    # With structured sparsity the data sheets print 1,979, 624 and 242 instead.
    assert KINDS["H100"].tensor_flops_per_s == 989.4e12
    assert KINDS["A100-80"].tensor_flops_per_s == KINDS["A100-40"].tensor_flops_per_s == 312e12
    assert KINDS["L4"].tensor_flops_per_s == 121e12


def test_memory_is_the_printed_size() -> None:
    gigabytes = [kind.memory_bytes / 1e9 for kind in KINDS.values()]
    assert gigabytes == [80, 80, 40, 16, 24, 24, 16, 24]


def test_rates() -> None:
    a100 = KINDS["A100-40"]
    assert a100.matmul_rate() == pytest.approx(312e12 * 0.75)
    assert a100.matmul_rate("fp32") == pytest.approx(19.5e12 * 0.75)
    assert a100.memory_rate == pytest.approx(1.555e12 * 0.85)


def test_find_kind() -> None:
    assert find_kind("V100-16") is KINDS["V100-16"]
    assert find_kind("v100") is None
    assert find_kind("") is None


def test_relative_speed() -> None:
    # 312 x 0.75 = 234 over 125 x 0.70 = 87.5.
    assert relative_speed("A100-40", "V100-16") == pytest.approx(234 / 87.5)
    assert relative_speed("V100-16", "A100-40") == pytest.approx(87.5 / 234)
    assert relative_speed("L4", "L4") == 1.0
    assert relative_speed("L4", "unknown") is None
    assert relative_speed("unknown", "L4") is None


def test_the_table_in_the_docs_is_this_table() -> None:
    rows = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in KINDS:
            rows[cells[0]] = [float(cell) for cell in cells[1:]]
    assert list(rows) == NAMES
    for name, (tensor, fp32, bandwidth, memory, matmul, memory_part) in rows.items():
        kind = KINDS[name]
        assert tensor == pytest.approx(kind.tensor_flops_per_s / 1e12)
        assert fp32 == pytest.approx(kind.fp32_flops_per_s / 1e12)
        assert bandwidth == pytest.approx(kind.memory_bandwidth / 1e9)
        assert memory == kind.memory_bytes / 1e9
        assert (matmul, memory_part) == (kind.matmul_fraction, kind.bandwidth_fraction)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("NVIDIA-A100-SXM4-40GB", "A100-40"),
        ("A100-PCIE-40GB", "A100-40"),
        ("NVIDIA A100 80GB PCIe", "A100-80"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla V100-SXM2-16GB", "V100-16"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA GeForce RTX 3090", "RTX-3090"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        # Variants with other data sheets.
        ("NVIDIA H100 PCIe", "NVIDIA-H100-PCIe"),
        ("Tesla V100-SXM2-32GB", "Tesla-V100-SXM2-32GB"),
        ("NVIDIA GeForce RTX 4090 D", "NVIDIA-GeForce-RTX-4090-D"),
        ("NVIDIA GeForce RTX 3090 Ti", "NVIDIA-GeForce-RTX-3090-Ti"),
        ("NVIDIA L40S", "NVIDIA-L40S"),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb"),
        ("cpu-1-thread", "cpu-1-thread"),
    ],
)
def test_names_of_drivers(name: str, kind: str) -> None:
    assert canonical_kind(name) == kind
    assert find_kind(name) is KINDS.get(kind)
    assert match_kind(kind, ["other", name]) == name
    assert match_kind(name, ["other", kind]) == kind
    assert match_kind(name, ["other"]) is None


@pytest.mark.parametrize("kind", NAMES)
def test_a_name_of_the_table_is_canonical(kind: str) -> None:
    assert canonical_kind(kind) == kind
