"""Losses: minus a measure."""
