"""Chooses a backend for a model's MLP per token count, or predicts one for a card that is not here."""
