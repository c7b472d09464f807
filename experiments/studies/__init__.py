"""Experiments that judged a rule once; what they found is in `benchmarks/results` and in the docs."""
