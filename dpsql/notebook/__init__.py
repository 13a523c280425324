"""The notebook: magic, completion, tables, plots."""
