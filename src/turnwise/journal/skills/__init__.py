"""The library of skills as the journal holds it."""
