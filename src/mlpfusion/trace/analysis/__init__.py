"""The analysis of a call: device work, launches, host time."""
