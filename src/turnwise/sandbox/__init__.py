"""A room for commands of an agent: they see one folder of their own, no network, and end at limits."""
