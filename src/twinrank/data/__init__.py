"""Datasets: loading, checking, caching, splitting, batching and transforming ranking data.

Internal: import public names from `twinrank`.
"""
