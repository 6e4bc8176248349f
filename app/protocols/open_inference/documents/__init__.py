"""Documents of the Open Inference Protocol in JSON and in protobuf, and the lists made of them."""
