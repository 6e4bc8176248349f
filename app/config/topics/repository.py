"""The folder of models: when it is read, and when the server is ready."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field, NonNegativeFloat

from app.config.rules import ModelsFolder


class RepositorySettings(BaseModel):
    """The folder of models, and readiness."""

    models: ModelsFolder = Field(
        Path("models"), description="Folder of models: <name>/<version>/saved_model.pb, or model.tflite."
    )
    default_model: str = Field(
        "", description="Model that POST /predict calls. Not needed if only one model is served."
    )
    poll_interval_s: NonNegativeFloat = Field(
        1.0, description="Seconds between two checks of the models folder. 0: the folder is read once, at start."
    )
    settle_s: NonNegativeFloat = Field(
        1.0,
        description="Seconds for which the files of a version must not have changed before it is loaded, since it may "
        "still be copied. Files older than a minute count as unchanged at once. 0: as soon as it looks complete.",
    )
    empty_grace_s: NonNegativeFloat = Field(
        60.0,
        description="Seconds for which an empty models folder, or an empty folder of a model, unloads nothing: a mount "
        "that went away leaves one. To unload at once, delete the model's folder, or ask by the API.",
    )
    strict_readiness: bool = Field(
        False,
        description="Be ready only while every model that was found at start can be called. If off, Ferry is ready "
        "when each of them has been tried and at least one can be called.",
    )
    wait_for_models: bool = Field(
        False,
        description="Accept requests only after every model has loaded, and exit if one cannot be loaded. If off, each "
        "model is served as soon as it has loaded.",
    )
