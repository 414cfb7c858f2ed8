"""The command line: reads what was typed, calls the stages, prints."""
