"""HTTP routes for operators: health, metrics, batching, and the OpenAPI paths of the models.

Only `app.server` imports from here.
"""
