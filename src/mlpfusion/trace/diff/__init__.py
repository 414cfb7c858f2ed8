"""How two calls differ."""
