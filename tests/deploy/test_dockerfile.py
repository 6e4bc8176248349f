"""What the Dockerfile promises, read from its text; image/ tries the image itself."""

import json
import re
import shlex
import tomllib
from fnmatch import fnmatch

from app.config.settings import Settings
from app.server import health_check
from tests.deploy.manifests import BASE, ROOT, pod_specs, read

TEXT = (ROOT / "Dockerfile").read_text()
LINES = re.sub(r"\\\n", " ", TEXT).splitlines()


def _last(instruction: str) -> str:
    return next(line for line in reversed(LINES) if line.startswith(f"{instruction} ")).partition(" ")[2].strip()


def _words(instruction: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(_last(instruction)))


def _variables() -> dict[str, str]:
    return _words("ENV")


def test_no_frontend_has_to_be_fetched() -> None:
    assert not any(re.match(r"#\s*syntax\s*=", line) for line in LINES)


def test_the_pages_build_on_the_image_by_the_name_that_they_give_it() -> None:
    pages = {page.name: page.read_text() for page in (ROOT / "docs").glob("*.md")}
    built = set(re.findall(r"docker build -t (\S+)", pages["deploy.md"]))
    bases = {base for text in pages.values() for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE)}
    assert bases
    assert bases <= built


def test_its_bases_can_be_given_by_digest() -> None:
    bases = [line.split()[1] for line in LINES if line.startswith("FROM ")]
    given = {line.split()[1].partition("=")[0] for line in LINES if line.startswith("ARG ")}
    assert all(re.fullmatch(r"\$\{(\w+)\}", base) and base[2:-1] in given for base in bases)


def test_what_it_says_of_ferry_is_what_the_project_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = {name.rpartition(".image.")[2]: text for name, text in _words("LABEL").items()}
    assert said["description"] == project["description"]
    assert said["licenses"] == project["license"]
    assert f"ARG VERSION={project['version']}" in LINES


def test_runs_under_a_numeric_user_that_kubernetes_runs_too() -> None:
    user, group = map(int, _last("USER").split(":"))
    (spec,) = pod_specs(read(BASE))
    assert user >= 10_000
    assert (user, group) == (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"])


def test_ferry_is_process_one_and_gets_the_signals() -> None:
    assert json.loads(_last("ENTRYPOINT")) == ["ferry"]
    assert json.loads(_last("CMD")) == ["serve"]


def test_exposes_the_ports_that_ferry_takes_and_checks_one() -> None:
    rest, grpc = (str(Settings.model_fields[name].default) for name in ("rest_port", "grpc_port"))
    assert _last("EXPOSE") == f"{grpc} {rest}"
    assert _variables()["FERRY_REST_PORT"] == rest
    assert json.loads(_last("HEALTHCHECK").partition(" CMD ")[2]) == ["python", "-m", health_check.__name__]


def test_every_ferry_variable_is_a_setting() -> None:
    names = {name for name in _variables() if name.startswith("FERRY_")}
    assert names
    assert names <= {f"FERRY_{name.upper()}" for name in Settings.model_fields}


def test_build_context_holds_all_that_is_copied() -> None:
    allowed = {line[1:].rstrip("/") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = [word for line in LINES if re.match(r"COPY (?!--from)", line) for word in line.split()[1:-1]]
    assert copied
    for source in copied:
        assert any(fnmatch(source, pattern) for pattern in allowed), source
