"""What loads the libraries that hatch_build.py compiles from C sources. Whoever has such a source imports it."""
