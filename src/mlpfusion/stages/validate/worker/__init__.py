"""Runs targets in a worker process and returns raw results, without judging."""
