"""Tasksets of `verifiers` as tasks: they are loaded, and their rubrics score, in a Python of their own in the sandbox."""
