"""Turns of the event loop: each peer and each connection gets its part."""
