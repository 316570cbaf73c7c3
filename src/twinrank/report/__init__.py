"""The report of a study: one HTML page that needs nothing else."""
