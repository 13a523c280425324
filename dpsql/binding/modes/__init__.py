"""The modes besides DP, choices among public candidates, and DECLARE.

ptr.py              SELECT WITH PTR: propose, test, release
stable.py           SELECT WITH STABLE: inverse sensitivity
synthetic.py        CREATE SYNTHETIC TABLE
subsample_block.py  SELECT WITH SUBSAMPLE: its options, and the combination of the blocks' results
block_sources.py    the rows of blocks, and what runs on each: a query or a registered function
block_queries.py    the query of each block
block_checks.py     the closed list of what such a query may use
choice.py           ABOVE_THRESHOLD and EXPMECH
utility.py          the statistic of a choice: a tree over exact aggregates, with public factors
scored_statistic.py its queries for all candidates, or its sweep
declared.py         DECLARE: a stream of questions
"""
