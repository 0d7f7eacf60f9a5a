"""The command to continue with after a cluster is known: plan, with a profile for its devices."""

import re

from penstock.cluster import Cluster

_CPU = re.compile(r"cpu-([0-9]{1,4})-threads?")


def planning(cluster: Cluster, source: str) -> str:
    """Plan a built-in model if its times can be computed for all devices; otherwise measure a model first.

    >>> from penstock.cluster.load import load_cluster
    >>> planning(load_cluster("2 x T4 @ 1 GB/s"), "t4.toml")
    'penstock plan --profile gpt2-xl --cluster "t4.toml"'
    >>> planning(load_cluster("2 x cpu-1-thread @ 1 GB/s"), "here.toml").partition(", then ")[0]
    'penstock profile script.py:make_model --threads 1 -o profile.json'
    """
    from penstock.bundle import known_kinds

    kinds = {device.kind for device in cluster.devices}
    if kinds == set(known_kinds(cluster)):
        return f'penstock plan --profile gpt2-xl --cluster "{source}"'
    threads = {match[1] for kind in kinds if (match := _CPU.fullmatch(kind))}
    option = f" --threads {threads.pop()}" if len(threads) == 1 else ""
    return (
        f"penstock profile script.py:make_model{option} -o profile.json, then "
        f'penstock plan --profile profile.json --cluster "{source}"'
    )
