"""The exhaustive explorer: the shipping machines in every interleaving of small worlds."""
