"""The simulator: whole clusters of the shipping machines under faults, decided by one seed, millions of events."""
