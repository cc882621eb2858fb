"""Families of terminal tasks: a seed and a difficulty make one, with its verifier and its solution."""
