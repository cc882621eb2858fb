"""Desktops: programs with windows, on a display that is the episode's own."""
