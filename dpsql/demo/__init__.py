"""Public health records under a policy, and cells that ask about them.

PROVENANCE.md has their sources.
"""

from pathlib import Path

POLICY = Path(__file__).with_name("policy.toml")
"""The policy of the demo's tables, which lie beside it."""
