"""What a call ran, launched, and spent on the host."""
