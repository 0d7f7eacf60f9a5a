"""SPP: device order by recursive minimum cut, then partition, replication and mapping on that order."""

from penstock.planners.methods.spp.device_order import link_weights, order_devices
from penstock.planners.methods.spp.partition import partitions
from penstock.planners.methods.spp.planner import device_orders, spp

__all__ = ["device_orders", "link_weights", "order_devices", "partitions", "spp"]
