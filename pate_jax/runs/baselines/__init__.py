"""Runs of other ways to learn from the same records, with the files and checks of any other run."""
