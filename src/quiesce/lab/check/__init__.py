"""`quiesce check`: the shipping machines in every state of named worlds, on all cores."""
