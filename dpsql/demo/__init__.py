"""The demo: public health records under a policy, and cells that ask about them. PROVENANCE.md tells more."""

from pathlib import Path

POLICY = Path(__file__).with_name("policy.toml")
"""The policy of the demo's tables, which lie beside it."""
