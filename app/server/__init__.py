"""The composition: what one process serves with is made, started, drained and stopped here.

Imported by frontends, model_server, cli and main; it may import every package below it.
"""
