"""Declaration: a TOML file becomes a frozen Study. Pure."""
