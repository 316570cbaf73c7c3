"""Boosting on several machines: a worker, and front ends for Dask and Spark. Internal."""
