"""How long keyboard and mouse have been still: asked of the desktop, which knows it; no key is ever looked at."""
