"""How many answers of servers to the corpus of rows are wrong: `python -m bench.row_answers`."""
