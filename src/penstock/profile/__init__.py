"""What a model costs: types, readers, analytic profiles."""
