"""What executes models. The only package that imports tensorflow."""
