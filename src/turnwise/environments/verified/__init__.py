"""Tasksets of `verifiers` as tasks: loaded, and scored by their rubrics, in a Python of their own in the sandbox."""
