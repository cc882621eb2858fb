"""The gate between a trained candidate and what is served: see gate.py."""
