"""What clients make this process take: bodies, replies, what they do not read."""
