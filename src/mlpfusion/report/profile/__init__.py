"""A profile as text: its tables, conclusion, legend and notes."""
