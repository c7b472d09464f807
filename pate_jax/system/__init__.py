"""The machine under a run: files written whole, locks, devices, topologies, progress, exit codes."""
