"""Profiles backends: qualify, trace, analyse, race, keep."""
