"""Listeners to the core's events: metrics, statistics, explanations and logs. Only app/server and process entry points
import it; other packages emit events (app/core/events.py).
"""
