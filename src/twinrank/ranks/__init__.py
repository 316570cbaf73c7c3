"""Exact ranks, and exact ranks that carry a gradient."""
