"""What a figure takes from result files: shapes with their races, times, rows, and the words for them."""
