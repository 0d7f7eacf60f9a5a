"""Reading what other tools say of a cluster: nvidia-smi, NCCL, Slurm, a matrix in CSV."""
