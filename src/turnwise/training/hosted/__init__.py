"""Weights that a server holds behind the Tinker API: what it is told, and what comes back."""
