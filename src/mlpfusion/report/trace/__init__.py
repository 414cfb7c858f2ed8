"""A trace's reading as text: what stands above its tables, the tables, findings, and what is rare."""
