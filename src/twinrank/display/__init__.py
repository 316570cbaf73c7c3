"""Output for people: progress bars, tables and plots.

Internal: used by the other packages.
"""
