"""The durable ledger: what was granted, reserved, charged and released."""
