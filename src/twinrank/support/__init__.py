"""Helpers for all packages: errors, files, arrays, compiled loops, random numbers, notation.

Internal: import public names from `twinrank`.
"""
