"""Whether there is memory to load a version: its need, what is left, and what a killed server was loading.

Imported by the repository and the composition.
"""
