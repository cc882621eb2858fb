"""MetaClaw-Bench: simulated workdays whose rules nobody states, to be learned from feedback."""
