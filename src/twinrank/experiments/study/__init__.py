"""Studies: comparisons, reproductions and searches. Internal: use the commands."""
