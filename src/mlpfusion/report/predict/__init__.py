"""Predictions as text: a result's calls on another card, and the fastest backend of a model there."""
