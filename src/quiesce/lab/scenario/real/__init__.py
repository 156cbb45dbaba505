"""Scenarios told by real worker processes with a real model."""
