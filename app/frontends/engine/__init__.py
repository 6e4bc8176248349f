"""The engine process: it accepts connections from frontends and submits their requests to models.

Imported by nothing but the supervisor's children (`app/model_server` has an engine process of its own).
"""
