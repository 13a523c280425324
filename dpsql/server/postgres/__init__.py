"""PostgreSQL's wire on the owner's server: clients that speak it reach the same front, workers and answer times."""
