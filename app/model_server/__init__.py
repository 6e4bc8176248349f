"""Ferry started as TensorFlow Serving is: its flags, its files, its environment."""
