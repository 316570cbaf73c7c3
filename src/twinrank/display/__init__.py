"""What a person sees: progress, tables and plots, one look for all."""
