"""Evaluation: many measures at once, under a named convention, with significance."""
