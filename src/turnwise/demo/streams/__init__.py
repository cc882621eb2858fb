"""The demos of streams: an agent learns tasks, in a shell or in a browser, from solutions and its own tries."""
