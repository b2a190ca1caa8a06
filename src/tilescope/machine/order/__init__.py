"""Which access of a run happens before which, and what was never ordered, whether or not it went wrong this time."""
