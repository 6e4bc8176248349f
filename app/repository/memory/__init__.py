"""The memory for loads: the need of a version, the memory that is left, and marks of loads that ended a server.

Imported by the repository and the composition.
"""
