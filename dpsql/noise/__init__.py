"""The only source of randomness: the operating system's entropy, and exact samplers over the integers."""
