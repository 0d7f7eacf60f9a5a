"""The papers behind a plan: its planner, its schedule, and the methods that its stages use."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.plan.types import Plan


class Paper(NamedTuple):
    """A publication. Exactly one of `journal` and `conference` is set, or neither for a preprint."""

    key: str
    authors: tuple[str, ...]
    title: str
    year: int
    url: str
    journal: str = ""
    conference: str = ""
    place: str = ""
    """Volume, number and pages, as printed."""

    @property
    def text(self) -> str:
        """The citation as one line of text.

        >>> SUBLINEAR_MEMORY.text.partition(". ")[0]
        'Tianqi Chen, Bing Xu, Chiyuan Zhang, Carlos Guestrin (2016)'
        """
        published = ", ".join(filter(None, (self.journal or self.conference, self.place)))
        parts = (f"{', '.join(self.authors)} ({self.year})", self.title, published, self.url)
        return ". ".join(filter(None, parts))

    @property
    def bibtex(self) -> str:
        """An entry of a BibTeX file."""
        kind = "article" if self.journal else "inproceedings" if self.conference else "misc"
        fields = {
            "author": " and ".join(self.authors),
            # In braces twice, so that BibTeX leaves capitals as they are.
            "title": f"{{{self.title}}}",
            "journal": self.journal,
            "booktitle": self.conference,
            "note": self.place,
            "year": str(self.year),
            "url": self.url,
        }
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
        return "\n".join((f"@{kind}{{{self.key},", *lines, "}"))


GPIPE = Paper(
    key="huang2019gpipe",
    authors=(
        *("Yanping Huang", "Youlong Cheng", "Ankur Bapna", "Orhan Firat", "Dehao Chen", "Mia Xu Chen"),
        *("HyoukJoong Lee", "Jiquan Ngiam", "Quoc V. Le", "Yonghui Wu", "Zhifeng Chen"),
    ),
    title="GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism",
    year=2019,
    url="https://arxiv.org/abs/1811.06965",
    conference="Advances in Neural Information Processing Systems (NeurIPS)",
)
PIPEDREAM = Paper(
    key="narayanan2019pipedream",
    authors=(
        *("Deepak Narayanan", "Aaron Harlap", "Amar Phanishayee", "Vivek Seshadri", "Nikhil R. Devanur"),
        *("Gregory R. Ganger", "Phillip B. Gibbons", "Matei Zaharia"),
    ),
    title="PipeDream: Generalized Pipeline Parallelism for DNN Training",
    year=2019,
    url="https://doi.org/10.1145/3341301.3359646",
    conference="ACM Symposium on Operating Systems Principles (SOSP)",
    place="pages 1-15",
)
PIPEDREAM_FLUSH = Paper(
    key="narayanan2021memory",
    authors=("Deepak Narayanan", "Amar Phanishayee", "Kaiyu Shi", "Xie Chen", "Matei Zaharia"),
    title="Memory-Efficient Pipeline-Parallel DNN Training",
    year=2021,
    url="https://arxiv.org/abs/2006.09503",
    conference="International Conference on Machine Learning (ICML)",
)
DAPPLE = Paper(
    key="fan2021dapple",
    authors=(
        *("Shiqing Fan", "Yi Rong", "Chen Meng", "Zongyan Cao", "Siyu Wang", "Zhen Zheng", "Chuan Wu"),
        *("Guoping Long", "Jun Yang", "Lixue Xia", "Lansong Diao", "Xiaoyong Liu", "Wei Lin"),
    ),
    title="DAPPLE: A Pipelined Data Parallel Approach for Training Large Models",
    year=2021,
    url="https://doi.org/10.1145/3437801.3441593",
    conference="ACM SIGPLAN Symposium on Principles and Practice of Parallel Programming (PPoPP)",
    place="pages 431-445",
)
INTERLEAVED = Paper(
    key="narayanan2021megatron",
    authors=(
        *("Deepak Narayanan", "Mohammad Shoeybi", "Jared Casper", "Patrick LeGresley", "Mostofa Patwary"),
        *("Vijay Korthikanti", "Dmitri Vainbrand", "Prethvi Kashinkunti", "Julie Bernauer", "Bryan Catanzaro"),
        *("Amar Phanishayee", "Matei Zaharia"),
    ),
    title="Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
    year=2021,
    url="https://arxiv.org/abs/2104.04473",
    conference="International Conference for High Performance Computing, Networking, Storage and Analysis (SC)",
)
ZERO_BUBBLE = Paper(
    key="qi2024zero",
    authors=("Penghui Qi", "Xinyi Wan", "Guangxing Huang", "Min Lin"),
    title="Zero Bubble Pipeline Parallelism",
    year=2024,
    url="https://arxiv.org/abs/2401.10241",
    conference="International Conference on Learning Representations (ICLR)",
)
CONTROLLABLE_MEMORY = Paper(
    key="qi2024controllable",
    authors=("Penghui Qi", "Xinyi Wan", "Nyamdavaa Amar", "Min Lin"),
    title="Pipeline Parallelism with Controllable Memory",
    year=2024,
    url="https://arxiv.org/abs/2405.15362",
)
SPP = Paper(
    key="luo2022efficient",
    authors=("Ziyue Luo", "Xiaodong Yi", "Guoping Long", "Shiqing Fan", "Chuan Wu", "Jun Yang", "Wei Lin"),
    title="Efficient Pipeline Planning for Expedited Distributed DNN Training",
    year=2022,
    url="https://arxiv.org/abs/2204.10562",
    conference="IEEE Conference on Computer Communications (INFOCOM)",
)
BI_PARTITION = Paper(
    key="cui2023bidirectional",
    authors=("Lingyun Cui", "Zhihao Qu", "Guomin Zhang", "Bin Tang", "Baoliu Ye"),
    title="A bidirectional DNN partition mechanism for efficient pipeline parallel training in cloud",
    year=2023,
    url="https://doi.org/10.1186/s13677-022-00382-7",
    journal="Journal of Cloud Computing",
    place="volume 12, article 22",
)
RING_ALL_REDUCE = Paper(
    key="patarasuk2009bandwidth",
    authors=("Pitch Patarasuk", "Xin Yuan"),
    title="Bandwidth optimal all-reduce algorithms for clusters of workstations",
    year=2009,
    url="https://www.cs.fsu.edu/~xyuan/paper/09jpdc.pdf",
    journal="Journal of Parallel and Distributed Computing",
    place="volume 69, number 2, pages 117-124",
)
SUBLINEAR_MEMORY = Paper(
    key="chen2016training",
    authors=("Tianqi Chen", "Bing Xu", "Chiyuan Zhang", "Carlos Guestrin"),
    title="Training Deep Nets with Sublinear Memory Cost",
    year=2016,
    url="https://arxiv.org/abs/1604.06174",
)

PLANNER_PAPERS: Mapping[str, tuple[Paper, ...]] = MappingProxyType(
    {
        "uniform": (),
        "balanced": (),
        "data_parallel": (RING_ALL_REDUCE,),
        "pipedream": (PIPEDREAM,),
        "dapple": (DAPPLE,),
        "spp": (SPP,),
        "bipartition": (BI_PARTITION,),
        "auto": (SPP, BI_PARTITION, ZERO_BUBBLE),
    }
)
SCHEDULE_PAPERS: Mapping[str, tuple[Paper, ...]] = MappingProxyType(
    {
        "gpipe": (GPIPE,),
        "1f1b": (PIPEDREAM, PIPEDREAM_FLUSH),
        "interleaved": (INTERLEAVED,),
        "zb_h1": (ZERO_BUBBLE,),
        "zb_v": (ZERO_BUBBLE, CONTROLLABLE_MEMORY),
        "v_half": (CONTROLLABLE_MEMORY,),
        "v_min": (CONTROLLABLE_MEMORY,),
        "pe": (SPP,),
        "auto": (ZERO_BUBBLE,),
        "auto_fused": (PIPEDREAM_FLUSH, SPP),
    }
)


def papers_behind(plan: "Plan") -> tuple[Paper, ...]:
    """The papers of the planner, the schedule and the stages, each once; none for unknown names."""
    found = [*PLANNER_PAPERS.get(plan.planner, ()), *SCHEDULE_PAPERS.get(plan.schedule, ())]
    if any(stage.has_remote_backward for stage in plan.stages):
        found.append(BI_PARTITION)
    if any(stage.num_replicas > 1 for stage in plan.stages):
        found.append(RING_ALL_REDUCE)
    if any(stage.recompute for stage in plan.stages):
        found.append(SUBLINEAR_MEMORY)
    return tuple(dict.fromkeys(found))
