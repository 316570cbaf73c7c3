"""Learning and evaluation from logs of clicks. Internal: import public names from `twinrank`."""
