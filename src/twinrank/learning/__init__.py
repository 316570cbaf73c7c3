"""Models, their training, and the estimators. Internal: import public names from `twinrank`."""
