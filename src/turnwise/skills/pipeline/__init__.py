"""What programs of many stages tell of their runs, and the lessons in it."""
