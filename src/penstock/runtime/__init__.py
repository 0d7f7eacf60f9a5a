"""Running a program on torch.distributed, with the numbers of one process. Everything here needs torch."""
