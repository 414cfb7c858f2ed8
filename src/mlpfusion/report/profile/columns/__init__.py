"""The columns of a profile's tables, a module for each set of them."""
