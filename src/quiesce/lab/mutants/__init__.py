"""Known-wrong variants of the shipping machines, rule by rule: what every check of them must be able to see."""
