"""Measuring a cluster with torch.distributed: every link, what they share, and every device."""
