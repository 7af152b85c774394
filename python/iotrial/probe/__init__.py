"""Client of the Rust probe process."""
