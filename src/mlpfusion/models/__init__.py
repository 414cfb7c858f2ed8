"""All that touches a user's model: finds its gated MLPs, swaps in a backend, proves what that changed."""
