"""Boosting: gradient-boosted trees on the library's own objectives."""
