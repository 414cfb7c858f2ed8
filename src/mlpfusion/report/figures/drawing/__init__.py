"""What a figure is made of but its numbers: axes, colours, names, words, and the file that it becomes."""
