"""The gateway's side: sessions, and their turns as they are asked for, answered, found and read again."""
