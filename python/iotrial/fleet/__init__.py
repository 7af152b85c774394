"""One trial on many hosts, and the combined result."""
