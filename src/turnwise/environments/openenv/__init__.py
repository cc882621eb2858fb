"""Environments that others serve by the convention of OpenEnv: an episode is one WebSocket connection."""
