"""The modes besides DP, choices among public candidates, and DECLARE.

ptr.py              SELECT WITH PTR: propose, test, release
stable.py           SELECT WITH STABLE: inverse sensitivity
synthetic.py        CREATE SYNTHETIC TABLE
subsample_block.py  SELECT WITH SUBSAMPLE: blocks of privacy units, and the combination of their results
block_queries.py    the query of each block
choice.py           ABOVE_THRESHOLD and EXPMECH, and the sweep over their candidates
utility.py          the statistic of a choice: a tree over exact aggregates, with public factors
declared.py         DECLARE: a stream of questions
"""
