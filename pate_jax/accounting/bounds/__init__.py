"""The bounds of the papers."""
