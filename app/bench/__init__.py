"""`ferry bench`: a load generator, and the search for the highest rate that a server answers in time.

The load generator works with any HTTP server, and imports nothing else of `app/`; `app/cli` and the project's `bench/`
import it.
"""
