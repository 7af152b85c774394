"""One comparison over several hosts: evidence, mean, spread, outliers and properties, from each host's summary."""
