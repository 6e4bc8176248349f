"""The parts of `python -m bench.gpu`: what each measures, and what they share. Only bench.gpu imports them."""
