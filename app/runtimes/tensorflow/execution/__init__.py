"""One call of a signature: from arrays to arrays with as few steps as possible. For saved_model and variants."""
