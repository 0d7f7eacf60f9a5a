"""What a cluster is: devices, hosts, links, and readers."""
