"""Puts result files into rows that a table can have side by side: read, joined, ranked, averaged over shapes."""
