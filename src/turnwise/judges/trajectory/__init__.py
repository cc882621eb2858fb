"""Judges of whole trajectories: SUCCESS or NOT SUCCESS, by a model that is shown what was asked, done and seen."""
