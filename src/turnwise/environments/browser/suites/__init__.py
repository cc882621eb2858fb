"""Tasks of the web by the file: those of benchmarks, and some that are made to fail."""
