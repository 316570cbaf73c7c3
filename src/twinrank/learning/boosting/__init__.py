"""Boosted trees: gradients of measures, LightGBM and XGBoost. Internal."""
