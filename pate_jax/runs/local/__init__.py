"""Votes with local noise: a public plan, each party's noisy answers and ledger, and the count of all."""
