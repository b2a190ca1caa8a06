"""The suites of `tilescope verify`, one subject a module."""
