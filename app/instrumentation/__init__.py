"""Listeners to the core's events: metrics and logs."""
