"""Compares measurements with a baseline: times with their uncertainty, and facts that need none."""
