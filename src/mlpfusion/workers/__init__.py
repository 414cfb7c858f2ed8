"""The parent's side of worker processes: what they are asked, how they start, end and answer."""
