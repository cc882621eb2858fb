"""Retrieval of skills, measured on labelled questions."""
