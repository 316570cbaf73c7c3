"""The paper's experiment, repeated. Internal: use `twinrank reproduce`."""
