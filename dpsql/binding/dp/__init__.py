"""SELECT WITH DP: noisy aggregates of groups.

private_block.py      the base of all blocks over private rows
noisy_block.py        the block of noisy aggregates
aggregates.py         calls of aggregates and their bounded arguments
moment_aggregates.py  COUNT, SUM, AVG and other formulas of moments
own_queries.py        aggregates with a query of their own: histograms, modes, found bounds
quantile_calls.py     quantiles, MEDIAN, MIN and MAX, and their strategy
budget_split.py       the split of epsilon and delta over aggregates
noise_choice.py       Laplace or Gaussian noise, and the accuracy that was asked for
public_groups.py      keys with public values, and values countable by bounds
grouping_sets.py      ROLLUP, CUBE and GROUPING SETS
marginal_sets.py      grouping sets measured as marginals
ordered_steps.py      strategies for groups in a public order
auto_caps.py          caps found privately
cut_queries.py        the query behind report_cut; the change of caps that would help most
"""
