"""Protocol buffers: TensorProto to arrays and back, predict requests as HTTP bodies, the text format, Ferry's messages.

Codecs, protocols, gRPC's transport and readers of configuration files import from here.
"""
