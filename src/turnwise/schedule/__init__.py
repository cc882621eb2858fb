"""When training may run without getting in a person's way: decisions only, no clock and no I/O."""
