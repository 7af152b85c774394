"""The same trial on many hosts, and what all of them say together."""
