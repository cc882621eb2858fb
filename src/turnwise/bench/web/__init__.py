"""How fast browsers are, how many fit beside each other, and what becomes of them among pages that misbehave."""
