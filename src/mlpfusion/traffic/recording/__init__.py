"""Records what each launch of a call reads and writes while the call runs."""
