"""The program that leaves with a student."""
