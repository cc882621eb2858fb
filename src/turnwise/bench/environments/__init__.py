"""How fast hosted environments are, and how many fit beside each other."""
