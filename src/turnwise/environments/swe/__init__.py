"""Repositories of real packages with a planted fault, which their own tests judge."""
