"""Runs the cells of a study on the machines of a Ray cluster."""
