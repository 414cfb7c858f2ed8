"""The records that stages hand to each other and that files hold: frozen, JSON both ways, no torch."""
