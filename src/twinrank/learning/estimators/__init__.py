"""Rankers with scikit-learn's interface. Internal: import them from `twinrank`."""
