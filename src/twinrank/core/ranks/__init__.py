"""Exact ranks with and without a gradient. Internal: import public names from `twinrank`."""
