"""Shorter system prompts that keep every rule."""
