"""Training: the loop, its callbacks, checkpoints."""
