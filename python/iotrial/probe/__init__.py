"""The process boundary to the Rust probe."""
