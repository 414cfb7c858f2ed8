"""What a figure takes from result files: shapes with their races, times, and rows."""
