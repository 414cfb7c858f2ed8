"""Predicts times on a card that is not here: products from measured tables, the rest from the ledger and datasheets."""
