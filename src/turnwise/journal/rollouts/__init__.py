"""Rollouts in the journal: trajectories with their outcomes, and the groups that they wait for."""
