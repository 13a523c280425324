"""Modes of one file each.

ptr.py        SELECT WITH PTR: propose, test, release
stable.py     SELECT WITH STABLE: inverse sensitivity
synthetic.py  CREATE SYNTHETIC TABLE
"""
