"""A run on disk: its settings, inputs, ledger, budget and stages."""
