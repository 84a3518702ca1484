"""The method as pure functions on NumPy and SciPy arrays: no files, no torch, no campaign."""
