"""The demo of a wish: skills at once, weights later, side by side."""
