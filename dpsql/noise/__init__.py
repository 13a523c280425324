"""Randomness: operating-system entropy, and exact samplers over the integers. Nothing else draws a number."""
