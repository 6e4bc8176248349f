"""What every part of Ferry shares: tensors and requests, errors, events, interfaces, checks of requests.

Every package of `app/` may import it; it imports numpy and pydantic only, and no other package of `app/`.
"""
