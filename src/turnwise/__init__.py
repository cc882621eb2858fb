"""turnwise: an agent that gets better by being used."""

__version__ = "0.1.0"
