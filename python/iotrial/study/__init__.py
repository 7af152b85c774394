"""Study declaration: reads a TOML file into a frozen Study. Pure."""
