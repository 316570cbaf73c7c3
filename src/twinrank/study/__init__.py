"""Comparisons, and what the paper reports."""
