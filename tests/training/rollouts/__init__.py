"""Rollouts: groups, outcomes and streams in training."""
