"""Actions in order, device by device: types, lowering, proofs."""
