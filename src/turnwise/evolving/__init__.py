"""The evolver: skills made of what went wrong, and what becomes of them."""
