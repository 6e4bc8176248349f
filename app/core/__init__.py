"""Types and checks that every part of Ferry shares: tensors, requests, errors, events, interfaces.

Every package of `app/` may import it; it imports numpy and pydantic only, and no other package of `app/`.
"""
