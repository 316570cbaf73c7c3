"""Data: any ranking table in, checked, mapped into memory, cut by query."""
