"""Commands that train: on what was gathered, at once, and on a file."""
