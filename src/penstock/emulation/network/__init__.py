"""Network namespaces with links shaped to the cluster's bandwidths."""

from penstock.emulation.network.namespaces import BuiltNetwork, build_network, check_tools, leave_host
from penstock.emulation.network.syscalls import enter_namespace
from penstock.emulation.network.topology import Network

__all__ = [
    "BuiltNetwork",
    "Network",
    "build_network",
    "check_tools",
    "enter_namespace",
    "leave_host",
]
