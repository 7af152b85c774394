"""Hosts by SSH: what is carried there, how it is started, and a link to it. Nothing is installed on a host."""
