"""Lists, exact ranks with a gradient, measures and losses.

Needs NumPy, numba and torch, and `support` of this package. Internal: import public names from
`twinrank`.
"""
