"""Model folders on disk, their versions, and the models that are loaded from them."""
