"""A plan run on one machine as if it were the cluster: real executor and messages, shaped links, devices that sleep."""
