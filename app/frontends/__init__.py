"""Several HTTP processes before one engine process: docs/architecture.md, "Frontends"."""
