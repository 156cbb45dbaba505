"""A page for operators: who owns which page, what is held and why, how traffic fares. Off unless it has a key."""
