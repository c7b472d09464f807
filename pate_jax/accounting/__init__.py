"""The accountant: what the answers cost, in NumPy float64 on the host; never imports JAX."""
