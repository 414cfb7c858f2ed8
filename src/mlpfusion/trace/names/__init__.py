"""What the name of a kernel says."""
