"""The OpenAPI document: every route of the HTTP protocols once, and again for each ready model with its own schemas.

Only `app.server` and the other pages of operators import from here.
"""
