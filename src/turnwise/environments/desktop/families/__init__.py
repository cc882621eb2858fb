"""Generators of desktop tasks: each family is a pure function of a seed."""
