"""The costs of calls by their rows: the model, its curves, and what calls take of the machine. No I/O, no clock."""
