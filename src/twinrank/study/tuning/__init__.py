"""The search for good parameters."""
