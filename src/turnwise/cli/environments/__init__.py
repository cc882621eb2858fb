"""Commands of hosted environments."""
