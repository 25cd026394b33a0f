"""Models that are kept and used: an exact fit, and how its features were made from raw rows."""
