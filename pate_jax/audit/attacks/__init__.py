"""Attacks on a run by its owner: what one person risks.

persons    whose risk is wanted: everybody, a sample or a list
removals   the votes that move when a teacher is trained again without one person, in waves
shifts     how far a crowd's tables move without one voter
risk       all of it: the exact figures of single persons, checked, and written into private/
"""
