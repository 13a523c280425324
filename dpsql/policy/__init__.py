"""The owner's policy: its model, its file, its checks, and imports from other systems."""
