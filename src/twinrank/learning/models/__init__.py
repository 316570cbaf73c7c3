"""Nets, saved models and their export. Internal."""
