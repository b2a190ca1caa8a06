"""Predictions held against the card."""
