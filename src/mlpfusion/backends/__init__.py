"""The built-in backends, one class each, registered by the same entry points as third-party ones."""
