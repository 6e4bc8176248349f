"""The loader of libraries that hatch_build.py compiles from C sources. Every package with such a source imports it."""
