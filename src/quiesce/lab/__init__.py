"""Everything that tries to break Quiesce. The product has no fault flags: faults are composed in here."""
