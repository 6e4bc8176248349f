"""The execution of models: the runtime and its threads, warming up, pipelines with fold, execution variants."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from app.config.rules import RuntimeName
from app.config.values import Names


class ExecutionSettings(BaseModel):
    """Execution: the runtime, warm-up, pipelines with fold, execution variants."""

    runtime: RuntimeName = Field(
        "tensorflow",
        description="Runtime that starts with the server, and executes a version that has files for several: "
        "tensorflow (saved_model.pb) or litert (model.tflite).",
    )
    intra_op_threads: NonNegativeInt = Field(
        0, description="Threads inside one operation. 0: the cores are shared among the batches in flight."
    )
    inter_op_threads: NonNegativeInt = Field(
        0, description="Operations that run at the same time. 0: TensorFlow chooses."
    )
    allowed_operations: Names[str] = Field(
        default_factory=list,
        description="TensorFlow operations that models may use although they read or write files, open connections or "
        "call Python, such as ReadFile,MatchingFiles. A model that would run another one is not loaded. Reading the "
        "model's own assets and variables is always allowed. Operations of TFLite that may end the server, too.",
    )
    operation_libraries: Names[str] = Field(
        default_factory=list,
        description="Libraries of operations that TensorFlow has not, loaded before the first model: packages, "
        "modules, or paths of shared libraries, such as my_operations,/opt/libbeam.so. Packages that Ferry knows, such "
        "as tensorflow-text, need not be named: a model's graph asks for them. The server does not start if one of "
        "these cannot be loaded.",
    )
    warm_up: bool = Field(
        True,
        description="Call a model before it counts as ready, and make it faster afterwards. If off, it is only tried "
        "whether rows may share calls (row_independence): the first calls are slow, and nothing is measured.",
    )
    ready_when: Literal["warm", "tuned"] = Field(
        "warm",
        description="When a version counts as ready. warm: as soon as it answers small batches; larger batches, faster "
        "execution variants and shared calls of different shapes follow in the background, while no requests are "
        "computed. tuned: when all of that is done.",
    )
    load_budget_s: NonNegativeFloat = Field(
        30.0,
        description="Most seconds of work to warm up a version and make it faster, after it was read; no call of the "
        "model is expected to take longer. What does not fit is done later, when no other version waits, in three "
        "rounds of 2, 4 and 8 times as long; what does not fit into the last one is left out. The first calls and the "
        "first probe of rows come in any case: they take 6 s at most for nearly all models. Waiting for a moment "
        "without requests does not count. 0: nothing is done later.",
    )
    fold_nodes: PositiveInt = Field(
        32_768,
        description="Most nodes that the trees of one request to a pipeline may have, at each step with fold. Where a "
        "node may have more than two children, as many fewer: half as many with four.",
    )
    fold_memory_mb: PositiveInt = Field(
        512,
        le=2**20,
        description="Most megabytes that the states of nodes take, at each step with fold of a pipeline. Requests that "
        "find no room are rejected as by a full queue.",
    )
    execution_variant: Literal["auto", "plain", "frozen", "inline", "xla"] = Field(
        "auto",
        description="How models are executed. plain: as saved. frozen: variables become constants. inline: frozen, in "
        "the thread that calls. xla: compiled by XLA. auto: the fastest, measured in the background.",
    )
    variant_cache: str = Field(
        "",
        description="Folder where is kept what was found out about models, for later starts: what auto chose, and "
        "proofs that rows may share calls. Empty: the folder ferry in the user's cache folder.",
    )
