"""The demo of the terminal: an agent learns to solve tasks in a shell, from solutions and then from its own tries."""
