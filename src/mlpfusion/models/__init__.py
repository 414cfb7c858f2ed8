"""A user's model: finds, swaps and chooses for its gated MLPs, proves the change, predicts times."""
