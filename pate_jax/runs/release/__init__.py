"""What may leave the house: the writer of `release/` and its guard."""
