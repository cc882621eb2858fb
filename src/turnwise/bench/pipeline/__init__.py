"""Runs of a program of many stages, measured before and after something changed."""
