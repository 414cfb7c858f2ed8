"""What is told of a user's model or of a card without running on it."""
