"""The built-in backends, one class each, registered through the same entry points as anybody's."""
