"""The report of a study: one HTML file that loads nothing else.

Internal: `twinrank compare`, `tune` and `reproduce` write reports.
"""
