"""Helpers for all packages: errors, files, arrays, compiled loops, random numbers,
notation; progress bars, tables and plots.

Internal: import public names from `twinrank`.
"""
