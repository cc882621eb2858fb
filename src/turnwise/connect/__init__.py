"""Points an agent's own configuration file at turnwise, and back again."""
