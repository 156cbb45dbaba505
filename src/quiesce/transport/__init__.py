"""Moving pages from one worker's pool into another's, and telling the truth about it (PROTOCOL section 6)."""
