"""When training may run without getting in a person's way: sensors, the window, and what it tells."""
