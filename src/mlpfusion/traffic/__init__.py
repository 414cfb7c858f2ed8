"""What a call moves through device memory."""
