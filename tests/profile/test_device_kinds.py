import pytest

from penstock.errors import InputError
from penstock.profile.device_kinds import KINDS, canonical_kind, find_kind, match_kind, relative_speed
from tests.support.paths import DOCS

NAMES = [
    "B200", "H200", "GH200", "H100", "A100-80", "A100-40", "MI300X", "V100-16", "L40S", "A10", "L4", "T4",
    "RTX-5090", "RTX-4090", "RTX-3090", "Titan-RTX", "RTX-2080Ti",
]  # fmt: skip
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
    assert 20e-6 <= kind.launch_s <= 200e-6
    # TF32 has half the rate of bf16, fp8 twice as much, where a device has them.
    for rate, ratio in ((kind.tf32_flops_per_s, 0.5), (kind.fp8_flops_per_s, 2.0)):
        assert rate is None or rate == pytest.approx(ratio * kind.tensor_flops_per_s, rel=0.02)
    assert 16e9 <= kind.peer_bandwidth <= 900e9
    assert 40 <= kind.multiprocessors <= 304
    # A roofline needs its ridge above what element-wise kernels do: more than 5 operations for every byte in fp32.
    assert kind.fp32_flops_per_s / kind.memory_bandwidth > 5


def test_dense_rates_not_sparse_ones() -> None:
    # With structured sparsity the data sheets print 1,979, 624 and 242 instead.
    assert KINDS["H100"].tensor_flops_per_s == 989.4e12
    assert KINDS["A100-80"].tensor_flops_per_s == KINDS["A100-40"].tensor_flops_per_s == 312e12
    assert KINDS["L4"].tensor_flops_per_s == 121e12


def test_memory_is_the_printed_size() -> None:
    gigabytes = [kind.memory_bytes / 1e9 for kind in KINDS.values()]
    assert gigabytes == [180, 141, 96, 80, 80, 40, 192, 16, 48, 24, 24, 16, 32, 24, 24, 24, 11]


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
    # A group of GPUs has no data sheet of its own.
    assert relative_speed("L4*2", "L4") is None
    assert relative_speed("A100-40*2", "V100-16*2") == relative_speed("A100-40", "V100-16")


def test_a_precision_that_a_kind_does_not_have_is_refused() -> None:
    assert KINDS["H100"].matmul_rate("fp8") == pytest.approx(1978.9e12 * 0.62)
    assert KINDS["A100-80"].matmul_rate("tf32") == pytest.approx(156e12 * 0.75)
    for name, precision in (("A100-80", "fp8"), ("V100-16", "tf32")):
        with pytest.raises(InputError, match=f"{name} has no {precision} products"):
            KINDS[name].matmul_rate(precision)  # type: ignore[arg-type]


def test_the_table_in_the_docs_is_this_table() -> None:
    rows = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in KINDS:
            rows[cells[0]] = [0.0 if cell == "-" else float(cell) for cell in cells[1:]]
    assert list(rows) == NAMES
    for name, (tensor, tf32, fp32, fp8, bandwidth, memory, matmul, memory_part, parts, peer) in rows.items():
        kind = KINDS[name]
        assert tf32 == pytest.approx((kind.tf32_flops_per_s or 0.0) / 1e12)
        assert fp8 == pytest.approx((kind.fp8_flops_per_s or 0.0) / 1e12)
        assert parts == kind.multiprocessors
        assert peer == pytest.approx(kind.peer_bandwidth / 1e9)
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
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA B200", "B200"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA GeForce RTX 5090", "RTX-5090"),
        ("GeForce RTX 2080 Ti", "RTX-2080Ti"),
        ("NVIDIA TITAN RTX", "Titan-RTX"),
        ("NVIDIA A100-SXM4-40GB*4", "A100-40*4"),
        # Variants with other data sheets.
        ("NVIDIA H100 PCIe", "NVIDIA-H100-PCIe"),
        ("Tesla V100-SXM2-32GB", "Tesla-V100-SXM2-32GB"),
        ("NVIDIA A10G", "NVIDIA-A10G"),
        ("NVIDIA GeForce RTX 4090 D", "NVIDIA-GeForce-RTX-4090-D"),
        ("NVIDIA GeForce RTX 3090 Ti", "NVIDIA-GeForce-RTX-3090-Ti"),
        ("NVIDIA L40", "NVIDIA-L40"),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb"),
        ("cpu-1-thread", "cpu-1-thread"),
    ],
)
def test_names_of_drivers(name: str, kind: str) -> None:
    assert canonical_kind(name) == kind
    assert find_kind(name) is KINDS.get(kind.partition("*")[0])
    assert match_kind(kind, ["other", name]) == name
    assert match_kind(name, ["other", kind]) == kind
    assert match_kind(name, ["other"]) is None


@pytest.mark.parametrize("kind", NAMES)
def test_a_name_of_the_table_is_canonical(kind: str) -> None:
    assert canonical_kind(kind) == kind
