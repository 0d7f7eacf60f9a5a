"""A check of a device: `-m penstock.launch.elastic.device_main NAME`. It exits with 0 if the device computes."""

import sys

from penstock.dist import exit_with_parent


def main(name: str) -> int:
    """Compute a product on the device of this process, and compare it.

    Args:
        name: "cpu", a type of accelerator, or "auto". LOCAL_RANK selects the device.
    """
    exit_with_parent()
    import torch

    from penstock.device import select_device

    device = select_device(name)
    ones = torch.ones(64, 64, device=device)
    return 0 if bool((ones @ ones == 64).all()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
