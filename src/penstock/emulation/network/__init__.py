"""Network namespaces with links shaped to the cluster's bandwidths."""

from penstock.emulation.network.namespaces import Built, build, check_tools, leave_host
from penstock.emulation.network.syscalls import die_with_parent, enter
from penstock.emulation.network.topology import Network

__all__ = ["Built", "Network", "build", "check_tools", "die_with_parent", "enter", "leave_host"]
