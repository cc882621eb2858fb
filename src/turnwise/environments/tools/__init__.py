"""Tasks with an answer that can be checked, and tools to find it with."""
