"""Synthetic data sets, which need no download."""
