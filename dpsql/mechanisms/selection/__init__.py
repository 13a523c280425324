"""Private selection: the sparse vector technique and the exponential mechanism."""
