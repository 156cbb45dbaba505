"""Trace lines that workers wrote, replayed against the model's actions: was every step of theirs one that is proved?"""
