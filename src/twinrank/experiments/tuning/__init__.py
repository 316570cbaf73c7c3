"""The search for good parameters. Internal: use `twinrank tune`."""
