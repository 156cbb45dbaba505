"""Text to tokens and back: tokenizers, chat templates, detokenising, stop strings. No weights, no torch."""
