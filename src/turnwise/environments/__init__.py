"""Hosted environments: tasks that an agent is put into, and whether it solved them."""
