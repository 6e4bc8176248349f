"""Memory that clients make this process take: bodies, replies, bytes that they do not read."""
