"""Topologies in the formats of other tools, for machines that do not exist."""

_MATRIX = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m",
    "GPU0\t X \tNV12\tNV12\tNV12\tPXB\tSYS\t48-63,176-191\t3\t\tN/A",
    "GPU1\tNV12\t X \tNV12\tNV12\tPXB\tSYS\t48-63,176-191\t3\t\tN/A",
    "GPU2\tNV12\tNV12\t X \tNV12\tSYS\tPXB\t16-31,144-159\t1\t\tN/A",
    "GPU3\tNV12\tNV12\tNV12\t X \tSYS\tPXB\t16-31,144-159\t1\t\tN/A",
    "NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS\t\t\t\t",
    "NIC1\tSYS\tSYS\tPXB\tPXB\tSYS\t X \t\t\t\t",
)
_LEGEND = """
Legend:

  X    = Self
  SYS  = PCIe and the interconnect between NUMA nodes
  NODE = PCIe and the interconnect between host bridges of a NUMA node
  PHB  = PCIe and a host bridge
  PXB  = several PCIe bridges
  PIX  = at most one PCIe bridge
  NV#  = a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""
DGX_A100 = "\n".join((*_MATRIX, _LEGEND))
"""With tabs and underlined, as on a terminal."""

V100_CUBE = """\
ml-07$ nvidia-smi topo -m
        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    mlx5_0  mlx5_2  CPU Affinity    NUMA Affinity
GPU0     X      NV1     NV1     NV2     NV2     SYS     SYS     SYS     PIX     SYS     0-19,40-59      0
GPU1    NV1      X      NV2     NV1     SYS     NV2     SYS     SYS     PIX     SYS     0-19,40-59      0
GPU2    NV1     NV2      X      NV2     SYS     SYS     NV1     SYS     PHB     SYS     0-19,40-59      0
GPU3    NV2     NV1     NV2      X      SYS     SYS     SYS     NV1     PHB     SYS     0-19,40-59      0
GPU4    NV2     SYS     SYS     SYS      X      NV1     NV1     NV2     SYS     PIX     20-39,60-79     1
GPU5    SYS     NV2     SYS     SYS     NV1      X      NV2     NV1     SYS     PIX     20-39,60-79     1
GPU6    SYS     SYS     NV1     SYS     NV1     NV2      X      NV2     SYS     PHB     20-39,60-79     1
GPU7    SYS     SYS     SYS     NV1     NV2     NV1     NV2      X      SYS     PHB     20-39,60-79     1
mlx5_0  PIX     PIX     PHB     PHB     SYS     SYS     SYS     SYS      X      SYS
mlx5_2  SYS     SYS     SYS     SYS     PIX     PIX     PHB     PHB     SYS      X
"""
"""Pasted with spaces, a prompt above it; old names of interfaces."""

WORKSTATION_MIG = """\
        GPU0    GPU1    GPU2    CPU Affinity    NUMA Affinity
GPU0     X      PHB     NODE    0-15            0
  MIG 3g.20gb     Device  0: (UUID: MIG-6f1c)
  MIG 2g.10gb     Device  1: (UUID: MIG-77aa)
GPU1    PHB      X      SOC     0-15            0
GPU2    NODE    SOC      X      16-31           1
"""

NCCL_SWITCHED = """\
<system version="1">
  <cpu host_hash="0x5d1f" numaid="0" affinity="0000,ffff" arch="x86_64" vendor="AuthenticAMD">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:07:00.0" class="0x030200" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0000:c4:00.0" count="6" tclass="0x068000"/>
          <nvlink target="0000:c5:00.0" count="6" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:0f:00.0" class="0x030200" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="80" rank="1" gdr="1">
          <nvlink target="0000:c4:00.0" count="6" tclass="0x068000"/>
          <nvlink target="0000:c5:00.0" count="6" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:0c:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="200000" port="1" latency="0.000000" guid="0xaa01" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
  <cpu host_hash="0x5d1f" numaid="1" affinity="ffff,0000" arch="x86_64" vendor="AuthenticAMD">
    <pci busid="0000:87:00.0" class="0x030200" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="2" sm="80" rank="2" gdr="1">
        <nvlink target="0000:c4:00.0" count="6" tclass="0x068000"/>
        <nvlink target="0000:c5:00.0" count="6" tclass="0x068000"/>
      </gpu>
    </pci>
  </cpu>
</system>
"""
"""Three A100 behind NVSwitches, one interface of 200 Gbit/s."""

NCCL_PCI = """\
<?xml version="1.0"?>
<!-- written by a job -->
<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel">
    <pci busid="0000:17:00.0" class="0x060400" link_speed="8.0 GT/s PCIe" link_width="16">
      <pci busid="0000:1A:00.0" class="0x030200" device="0x1db1" link_speed="8.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="70" rank="0" gdr="0">
          <nvlink target="0000:1B:00.0" count="2" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:1B:00.0" class="0x030200" device="0x1db1" link_speed="8.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="70" rank="1" gdr="0">
          <nvlink target="0000:1A:00.0" count="2" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:1C:00.0" class="0x030200" device="0x1eb8" link_speed="8.0 GT/s PCIe" link_width="8">
        <gpu dev="2" sm="75" rank="2" gdr="0"/>
      </pci>
    </pci>
    <pci busid="0000:3d:00.0" class="0x030200" device="0x1eb8" link_speed="8.0 GT/s PCIe" link_width="16">
      <gpu dev="3" sm="75" rank="3" gdr="0"/>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="ffff0000" arch="x86_64" vendor="GenuineIntel">
    <pci busid="0000:af:00.0" class="0x030200" device="0x9999" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="4" sm="89" rank="4" gdr="0"/>
    </pci>
  </cpu>
</system>
"""
"""Direct NVLinks, one switch of PCI, two sockets, a GPU of unknown kind."""

SLURM_TREE = """\
# our three racks
SwitchName=rack1 Nodes=node[01-03]
SwitchName=rack2 Nodes=node[04-05,09] LinkSpeed=100
switchname=rack3   nodes=big1,big2   # lower case is as good

SwitchName=spine Switches=rack[1-2]
SwitchName=top Switches=spine,rack3
"""

SLURM_BLOCKS = """\
BlockName=b0 Nodes=gb[01-04]
BlockName=b1 Nodes=gb[05-08]
BlockSizes=4,8
"""

SLURM_YAML = """\
---
# two ways to see the same nodes
- topology: flat_one
  flat: true
- topology: tree_one
  cluster_default: true
  tree:
    switches:
      - switch: top          # the root
        children: leaf[1-2]
      - switch: leaf1
        nodes: node[01-02]
      - switch: leaf2
        nodes: "node[03-04]"
"""

SLURM_YAML_BLOCKS = """\
- topology: blocks
  cluster_default: false
  block:
    block_sizes: [2, 4]
    blocks:
    - block: a
      nodes: n[1-2]
    - block: b
      nodes: n[3-4]
"""

MATRIX = """\
GB/s,alpha.0,alpha.1,beta.0
alpha.0,,50,1.2
alpha.1,48,,1.2
beta.0,1.2,1.1,
"""

MATRIX_WITH_UNITS = """\
;a;b
a;X;"25 GB/s, 5 us"
b;10 Gbit/s;-
"""

EVERY = {
    "nvidia-smi": (DGX_A100, V100_CUBE, WORKSTATION_MIG),
    "nccl": (NCCL_SWITCHED, NCCL_PCI),
    "slurm": (SLURM_TREE, SLURM_BLOCKS, SLURM_YAML, SLURM_YAML_BLOCKS),
    "csv": (MATRIX, MATRIX_WITH_UNITS),
}
