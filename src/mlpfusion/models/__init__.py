"""What concerns a user's model: its gated MLPs found and swapped, what that changed proved, times predicted."""
