"""The notebook's face: magic, completion, tables, plots."""
