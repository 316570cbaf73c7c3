"""Models in formats of other software. Internal: use `Ranker.export` or `twinrank export`."""
