"""Agents that are programs of their own: each works in an episode's sandbox, and asks the gateway for its answers."""
