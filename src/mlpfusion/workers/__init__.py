"""The parent's side of worker processes: tasks, start, supervision, end."""
