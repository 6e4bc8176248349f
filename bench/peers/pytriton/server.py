"""PyTriton: Triton's server with the signature as a Python callable (it has no TensorFlow backend any more)."""

from __future__ import annotations

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

from bench.peers.saved_model import INPUT, MAX_BATCH_SIZE, MODEL, OUTPUT, PORT, Array, Signature


def main() -> None:
    signature = Signature()

    @batch
    def predict(**inputs: Array) -> dict[str, Array]:
        return {OUTPUT: signature.run(inputs[INPUT])}

    config = TritonConfig(
        http_address="127.0.0.1", http_port=PORT, allow_grpc=False, allow_metrics=False, exit_timeout_secs=5
    )
    with Triton(config=config) as triton:
        triton.bind(
            model_name=MODEL,
            infer_func=predict,
            inputs=[Tensor(name=INPUT, dtype=signature.dtype, shape=signature.shape)],
            outputs=[Tensor(name=OUTPUT, dtype=np.float32, shape=(-1,))],
            config=ModelConfig(max_batch_size=MAX_BATCH_SIZE, batcher=DynamicBatcher(max_queue_delay_microseconds=0)),
        )
        triton.serve()


if __name__ == "__main__":
    main()
