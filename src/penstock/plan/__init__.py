"""Which device runs which units: types, costs, memory."""
