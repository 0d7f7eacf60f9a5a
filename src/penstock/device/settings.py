"""Environment variables that change what devices, their libraries and torch do."""

SETTINGS = ("CUDA_", "NCCL_", "GLOO_", "OMP_NUM_THREADS", "TORCH_", "PYTORCH_", "HIP_", "ROCR_", "ZE_", "SLURM_")
"""How their names begin."""
