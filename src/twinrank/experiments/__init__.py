"""Studies, searches for parameters, the experiment of the paper, reports. Internal."""
