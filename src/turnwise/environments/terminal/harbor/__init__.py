"""Harbor task folders, as tasks of the terminal where the sandbox is all the image that they need."""
