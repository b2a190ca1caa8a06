"""Scripts that make recordings lie beside them; none of them is a test."""

collect_ignore_glob = ["*/*.py"]
