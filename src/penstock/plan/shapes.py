"""Assignment of stages to a row of devices.

straight   0 1 2 3          one stage per device
loop       0 1 2 3 4 5 6 7  over devices 0 1 2 3 0 1 2 3
v          0 1 2 3 4 5 6 7  over devices 0 1 2 3 3 2 1 0
"""

from enum import StrEnum


class Shape(StrEnum):
    """Assignment of stages to a row of devices."""

    STRAIGHT = "straight"
    LOOP = "loop"
    V = "v"

    def stage_devices(self, num_devices: int, num_chunks: int) -> list[int]:
        """The device of each stage, as its index in the row of devices.

        >>> Shape.LOOP.stage_devices(2, 2), Shape.V.stage_devices(2, 2), Shape.STRAIGHT.stage_devices(2, 1)
        ([0, 1, 0, 1], [0, 1, 1, 0], [0, 1])
        """
        row = list(range(num_devices))
        if self is Shape.V:
            return [device for chunk in range(num_chunks) for device in (row if chunk % 2 == 0 else row[::-1])]
        return row * num_chunks
