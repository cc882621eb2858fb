"""Pictures: read from outside with suspicion, kept once by their hash, and placed in the ids of a prompt."""
