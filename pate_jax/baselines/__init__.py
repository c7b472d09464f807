"""Other ways to learn from private records, for comparison on the same data: no teachers, no votes."""
