"""Evaluation by many measures, conventions, significance tests and comparisons.

Internal: import public names from `twinrank`.
"""
