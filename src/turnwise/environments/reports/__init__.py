"""What a run of rollouts leaves to be read: figures, curves, and three trajectories as they went."""
