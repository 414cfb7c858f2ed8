"""One HTML file of any results: words first, then tables, figures, verdicts, methods, and the files themselves."""
