"""Timings on the card."""
