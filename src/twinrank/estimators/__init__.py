"""Estimators: the scikit-learn face of training."""
