"""Records, scrubs and compares traces."""
