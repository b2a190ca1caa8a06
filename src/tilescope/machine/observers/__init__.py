"""What watches a run: costs, tiles, last writers, pictures of shared memory."""
