"""Search for settings: `space` says what is tried, `study` remembers, `workers` train, `results` are left."""
