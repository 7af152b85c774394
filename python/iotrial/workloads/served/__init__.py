"""What works on a server have in common: the site, its server, and clients that work at once."""
