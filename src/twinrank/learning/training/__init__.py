"""The training loop, learners, callbacks, checkpoints and run folders. Internal."""
