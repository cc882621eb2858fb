"""A person and rollouts at once against one policy: what the person waits, and what is learned from each."""
