"""SELECT WITH DP: noisy aggregates of groups.

private_block.py     the base of all blocks over private rows
noisy_block.py       the block of noisy aggregates
aggregates.py        calls of aggregates and their bounded arguments
noisy_aggregates.py  the aggregates that are formulas of noisy moments; all binders by name
row_queries.py       aggregates with queries of their own: quantiles, histograms, modes, found bounds
budget_split.py      the split of epsilon and delta over aggregates
noise_choice.py      Laplace or Gaussian noise, and the accuracy that was asked for
public_groups.py     keys with public values, and values countable by bounds
period_groups.py     the periods of groups, and the parts of a block that they pay for
grouping_sets.py     ROLLUP, CUBE and GROUPING SETS: a block for each set, and the statement above
joint_sets.py        grouping sets measured together, as marginals of the finest cells
block_strategies.py  strategies for groups in a public order, and for several quantiles of a column
unit_caps.py         caps found privately, and the report of what caps leave out
"""
