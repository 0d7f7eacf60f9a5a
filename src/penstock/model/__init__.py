"""A user's nn.Module as a chain of blocks. Everything here needs torch."""
