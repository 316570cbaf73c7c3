"""Boosting on several machines. Internal: pass Dask collections to `BoostedRanker.fit`."""
