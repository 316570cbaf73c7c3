"""Models: scorers that give every document a number, saved as folders."""
