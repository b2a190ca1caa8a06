"""Watching another program on the card."""
