"""Public health records under a policy, and cells that ask about them.

demo.py  the command ``dpsql demo``, and its data behind a server

PROVENANCE.md has the sources of the records.
"""

from pathlib import Path

POLICY = Path(__file__).with_name("policy.toml")
"""The policy of the demo's tables, which are in this folder."""
