"""The checks, each a function with what it asks for."""
