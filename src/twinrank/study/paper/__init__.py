"""The paper's tables and figures, beside its numbers."""
