"""The checks: a function for each, and its row in a table."""
