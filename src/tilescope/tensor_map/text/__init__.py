"""Tensor maps in other people's text: calls, dumps, logs, JSON."""
