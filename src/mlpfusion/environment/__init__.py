"""Records where and with what something was measured, and checks whether that still holds."""
