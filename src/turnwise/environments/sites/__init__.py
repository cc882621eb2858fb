"""Real web applications as places for tasks: each started here, on loopback, with data of its own for every rollout."""
