"""Where and with what something was measured, and whether that still holds."""
