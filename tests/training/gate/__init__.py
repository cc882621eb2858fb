"""The gate: its figures by hand, its decision, and parts of a step."""
