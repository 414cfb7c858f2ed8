"""What a figure is made of but its numbers: axes, colours, names, and the file that it becomes."""
