"""Measures a study: the product of models, tokens, dtypes and modes, one profile a cell."""
