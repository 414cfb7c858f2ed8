"""The formats of a table: each renders the same document."""
