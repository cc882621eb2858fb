"""The person's calendar: only when they are in a meeting is kept of it, never what the meeting is called."""
