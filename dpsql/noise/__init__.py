"""The only source of randomness: the operating system's entropy, and exact samplers over the integers.

entropy.py         uniform words, integers and reals
samplers.py        Bernoulli, geometric, discrete Laplace and rounded Gaussian variables; chains of noise; groups of a unit
selection.py       private choices: exponential mechanism, permute-and-flip, noisy max
"""
