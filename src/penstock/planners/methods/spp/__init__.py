"""SPP: device order by recursive minimum cut, then partition, replication and mapping."""

from penstock.planners.methods.spp.device_order import order_devices, weights
from penstock.planners.methods.spp.partition import partitions
from penstock.planners.methods.spp.planner import device_orders, spp

__all__ = ["device_orders", "order_devices", "partitions", "spp", "weights"]
