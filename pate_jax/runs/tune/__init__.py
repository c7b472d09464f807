"""A choice of settings on private data, which is paid for: `pate tune` (docs/proofs/tuning.md)."""
