"""The composition: what one process serves with is made, started, drained and stopped here.

Imported by frontends and the entry points only; it may import every other package.
"""
