"""What every room needs: errors, suggestions, the Name(option=…)@k notation, compiled loops."""
