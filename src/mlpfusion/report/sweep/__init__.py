"""Shows studies: before they run, and what they found."""
