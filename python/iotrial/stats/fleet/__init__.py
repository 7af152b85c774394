"""Meta-analysis of one comparison over several hosts, from host summaries: evidence, mean, spread, outliers, moderators."""
