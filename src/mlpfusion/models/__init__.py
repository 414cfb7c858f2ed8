"""What a user's model is, and which backend is for it."""
