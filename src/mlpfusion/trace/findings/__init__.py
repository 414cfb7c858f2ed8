"""What is worth knowing about a call: rules from what was observed to what to do."""
