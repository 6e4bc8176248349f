"""Calls every operation by a client that openapi-python-client has generated from the server's own document."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import traceback
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from exchange import case, main

#: The package that the generator makes, whose name follows from the document, in a folder of nearly that name.
_PACKAGE = "ferry_http_api_client"

#: Nothing but that the code is not formatted.
_OPTIONS = "post_hooks: []\n"


def generate(document: dict[str, Any], folder: Path) -> str:
    """Makes the package in the folder; what the generator says, warnings among it."""
    options, described = folder / "generator.yaml", folder / "openapi.json"
    options.write_text(_OPTIONS)
    described.write_text(json.dumps(document))
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", str(described)]
    done = subprocess.run(
        [*command, "--config", str(options), "--overwrite"], capture_output=True, text=True, check=True, cwd=folder
    )
    return done.stdout + done.stderr


def functions() -> dict[str, ModuleType]:
    """The module of each operation, by the letters and digits of its name."""
    api = importlib.import_module(f"{_PACKAGE}.api")
    names = [each.name for each in pkgutil.walk_packages(api.__path__, f"{_PACKAGE}.api.") if not each.ispkg]
    return {plain(name.rpartition(".")[2]): importlib.import_module(name) for name in names}


def plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def ask(client: Any, module: ModuleType, call: dict[str, Any]) -> dict[str, Any]:
    arguments = {**call["path"], **call["query"]}
    if call["body"] is not None:
        arguments["body"] = body_of(inspect.signature(module.sync_detailed).parameters["body"].annotation, call["body"])
    reply = module.sync_detailed(client=client, **arguments)
    return {
        "status": int(reply.status_code),
        "parsed": type(reply.parsed).__name__,
        "text": reply.content.decode()[:500],
    }


def body_of(annotation: Any, body: Any) -> Any:
    """The body as the class that the generator has made for it, which must keep all of it."""
    classes = get_args(annotation) or (annotation,)
    if isinstance(body, str):
        file = next(each for each in classes if each.__name__ == "File")
        return file(payload=BytesIO(body.encode()))
    for each in classes:
        with suppress(AttributeError, KeyError, TypeError, ValueError):  # a class of another form
            made = each.from_dict(body)
            if made.to_dict() == body:
                return made
    raise ValueError(f"none of {classes} takes {json.dumps(body)[:200]}")


@case
def every_operation(question: dict[str, Any]) -> dict[str, Any]:
    """What the generator said; by operation: status, and the class that it made for the reply; or what was raised."""
    folder = Path(question["folder"])
    said = generate(question["document"], folder)
    sys.path.insert(0, str(folder / _PACKAGE.replace("_", "-")))
    client = importlib.import_module(_PACKAGE).Client(base_url=question["url"], timeout=None)
    found = functions()
    answers: dict[str, Any] = {}
    for call in question["calls"]:
        name = call["operation"]
        try:
            answers[name] = ask(client, found[plain(name)], call)
        except KeyError:
            answers[name] = {"raised": f"the generator made no function of it: {said[-2000:]}"}
        except Exception:
            answers[name] = {"raised": traceback.format_exc()}
    return {"said": said, "answers": answers}


if __name__ == "__main__":
    main()
