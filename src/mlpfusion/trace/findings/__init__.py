"""Findings about a call: rules from an observation to advice."""
