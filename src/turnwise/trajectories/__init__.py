"""What an agent did in a task, from beginning to end: as data, as a reward, as figures and as a page to read."""
