"""What concerns a user's model: its gated MLPs found, swapped and chosen for, the change proved, times predicted."""
