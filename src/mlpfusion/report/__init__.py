"""What a record looks like to a reader: pure functions from records to text."""
