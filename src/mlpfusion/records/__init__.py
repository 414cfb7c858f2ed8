"""Frozen records that stages pass on and files contain: JSON both ways, no torch."""
