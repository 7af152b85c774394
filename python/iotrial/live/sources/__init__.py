"""Where the metric of a live trial comes from: one module for each kind of source."""
