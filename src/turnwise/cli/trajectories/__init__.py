"""Commands about whole trajectories: their judges, their figures, and their pages."""
