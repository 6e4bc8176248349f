"""The costs of calls by their rows: the cost model, its curves, and what a call takes of the machine. No I/O, no clock."""
