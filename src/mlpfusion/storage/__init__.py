"""Files: what is read from them, and how they are written."""
