"""Writes a Helm chart that renders what kustomize renders of k8s/base and k8s/components.

    python -m k8s.chart FOLDER

Nothing is written twice: each template is a rendered manifest, with a condition around what a component adds or takes
away, and values in place of what most installations set. What cannot be told apart in this way ends with an error, so
a new component works as a flag, or is noticed. It needs kubectl or kustomize. tests/deploy/components/check_chart.py
compares what the chart renders with kustomize.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import count, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
K8S = ROOT / "k8s"

Manifest = dict[str, Any]
Key = tuple[str, str]

#: What a component's strings are replaced with: the value's name, and the string that it has in k8s/components.
STRINGS: Mapping[str, Mapping[str, str]] = {
    "access-keys": {"secret": "ferry-access", "metricsKey": "ferry-metrics-key"},
    "autoscaling-keda": {"prometheus": "http://prometheus-operated.monitoring.svc:9090"},
    "gateway": {"gateway": "gateway", "hostname": "ferry.example.com"},
    "models-oci": {"reference": f"registry.example.com/models@sha256:{'0' * 64}"},
    "models-store": {"image": "rclone/rclone:1.75.2", "source": "store:models", "secret": "ferry-models-store"},
    "models-volume": {"claim": "ferry-models"},
    "mutual-tls": {"clientCa": "ferry-client-ca"},
    "shared-cache": {"claim": "ferry-cache"},
    "tls": {"secret": "ferry-tls"},
}

#: Of each group at most one goes into a Deployment.
EITHER = (("autoscaling-hpa", "autoscaling-keda"), ("models-oci", "models-store", "models-volume"))

#: Components that change what others add; they are listed behind them.
CHANGES: Mapping[str, Sequence[str]] = {
    "access-keys": ["monitoring"],
    "models-store": ["networkpolicy"],
    "mutual-tls": ["monitoring", "networkpolicy"],
    "operator-port": ["monitoring", "networkpolicy"],
    "tls": ["monitoring"],
}

#: What a component has in it; it is listed behind them.
INCLUDES: Mapping[str, Sequence[str]] = {"mutual-tls": ["operator-port", "tls"]}

_FOLDERS = {path.parent.name for path in (K8S / "components").glob("*/kustomization.yaml")}

#: In the order in which kustomize applies them.
COMPONENTS = sorted(_FOLDERS, key=lambda name: (name in CHANGES, name in INCLUDES, name))

_DEPLOYMENT = ("Deployment", "ferry")
_AUTOSCALER = ("HorizontalPodAutoscaler", "ferry")
_COUNTS = {f"{least_or_most}Replica{end}": least_or_most for least_or_most in ("min", "max") for end in ("s", "Count")}


# --- what kustomize renders ---


def render(components: Sequence[str] = (), base: Path = K8S / "base") -> dict[Key, Manifest]:
    tool = ["kubectl", "kustomize"] if shutil.which("kubectl") else ["kustomize", "build"]
    with TemporaryDirectory() as folder:
        up = "/".join([".."] * len(Path(folder).resolve().parts[1:]))  # kustomize takes folders by relative path only
        listed = [f"{up}{K8S}/components/{name}" for name in components]
        kustomization = {"resources": [f"{up}{base}"], "components": listed}
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        text = subprocess.run([*tool, folder], capture_output=True, text=True, check=True).stdout  # noqa: S603 - ours
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}


def flag(component: str) -> str:
    """The name among the values, as Helm's conventions have it: camelCase."""
    first, *rest = component.split("-")
    return first + "".join(map(str.title, rest))


def enabled(component: str) -> str:
    return f".Values.components.{flag(component)}.enabled"


def any_enabled(components: Sequence[str]) -> str:
    conditions = " ".join(map(enabled, components))
    return conditions if len(components) == 1 else f"(or {conditions})"


# --- template text within YAML ---


class Template:
    """YAML with template text in it: marks stand for that until the YAML is text."""

    def __init__(self) -> None:
        self._number = count()
        self._texts: dict[str, Callable[[int], str]] = {}
        self._lines: set[str] = set()  # the marks that stand for whole lines

    def text(self, template: str) -> str:
        """A string, or a part of one, that is `template`."""
        return self._mark(lambda _: template)

    def value(self, path: str) -> str:
        """Whatever is at this path of the values."""
        return self._mark(lambda column: f"{{{{- toYaml .Values.{path} | nindent {column + 2} }}}}")

    def line(self, template: str) -> str:
        """A key, or an item of a list, that is nothing but the lines of `template`; `@` there is its column."""
        mark = self._mark(lambda column: template.replace("@", str(column)))
        self._lines.add(mark)
        return mark

    def _mark(self, text: Callable[[int], str]) -> str:
        mark = f"__{next(self._number)}__"
        self._texts[mark] = text
        return mark

    def written(self, manifest: Manifest) -> str:
        text = yaml.safe_dump(manifest, sort_keys=False, width=10**6)
        text = text.replace("{{", '{{ "{{" }}')  # of Prometheus, Grafana and KServe
        lines = [self._line(line) for line in text.splitlines()]
        return "\n".join(lines) + "\n"

    def _line(self, line: str) -> str:
        column = len(line) - len(line.lstrip())
        whole = re.fullmatch(r"\s*(?:- )?(__\d+__)(?:: null)?", line)
        if whole and whole[1] in self._lines:
            return self._texts[whole[1]](column)
        return re.sub(r"__\d+__", lambda found: self._texts[found[0]](column), line)


# --- a base with what components add to it ---


#: Makes of what these components have in common what is written.
Put = Callable[[Sequence[str], Any], Any]


def merged(template: Template, base: Any, variants: Mapping[str, Any], put: Put) -> Any:
    """`base` with what each variant has beside it, or another string, below a condition.

    Raises ValueError for any other difference, and where two variants differ at one place.
    """
    different = {name: each for name, each in variants.items() if each != base}
    if not different:
        return base
    if isinstance(base, dict) and all(base.keys() <= each.keys() for each in different.values()):
        return _merged_fields(template, base, different, put)
    if isinstance(base, list):
        return _merged_items(template, base, different, put)
    if isinstance(base, str):
        names, text = _in_common(different)
        return template.text(f"{{{{ ternary {json.dumps(text)} {json.dumps(base)} {any_enabled(names)} | quote }}}}")
    raise ValueError(f"{sorted(different)} change or take away {base!r}; a chart can only add")


def _in_common(variants: Mapping[str, Any]) -> tuple[Sequence[str], Any]:
    """The components, and what all of them have."""
    first, *others = variants.values()
    if any(each != first for each in others):
        raise ValueError(f"{sorted(variants)} differ where a chart has one place: {first!r}")
    return list(variants), first


def _merged_fields(template: Template, base: Manifest, variants: Mapping[str, Manifest], put: Put) -> Manifest:
    made: Manifest = {}
    keys = {*base, *(key for each in variants.values() for key in each)}
    for key in sorted(keys, key=lambda key: (key not in base, key)):  # an item of a list begins with no condition
        if key in base:
            made[key] = merged(template, base[key], {name: each[key] for name, each in variants.items()}, put)
            continue
        names, node = _in_common({name: each[key] for name, each in variants.items() if key in each})
        made[template.line(f"{{{{- if {any_enabled(names)} }}}}")] = None
        made[key] = put(names, node)
        made[template.line("{{- end }}")] = None
    return made


def _merged_items(template: Template, base: list[Any], variants: Mapping[str, list[Any]], put: Put) -> list[Any]:
    added = {name: items[: len(items) - len(base)] for name, items in variants.items()}
    others = {name: items[len(items) - len(base) :] for name, items in variants.items()}
    made: list[Any] = []
    for name in reversed(added):  # each goes before what was there
        within = [other for other, included in INCLUDES.items() if name in included and other in added]
        own = [item for item in added[name] if not any(item in added[other] for other in within)]
        for names, items in groupby(own, partial(_adding, added, name)):
            made += [template.line(f"{{{{- if {any_enabled(names)} }}}}"), *put(names, list(items))]
            made.append(template.line("{{- end }}"))
    for place, item in enumerate(base):
        made.append(merged(template, item, {name: items[place] for name, items in others.items()}, put))
    if not base:  # else nothing would be there, which is null
        made.append(
            template.line(f'{{{{- if not {any_enabled(list(added))} }}}}{{{{ "  []" | nindent @ }}}}{{{{ end }}}}')
        )
    return made


def _adding(added: Mapping[str, list[Any]], component: str, item: Any) -> Sequence[str]:
    """Of a component and those that it includes."""
    return [name for name in (component, *INCLUDES.get(component, ())) if item in added.get(name, ())]


def replaced(template: Template, node: Any, strings: Mapping[str, str]) -> Any:
    """With template text for whole strings, for counts of replicas, and for the namespace in queries."""
    if isinstance(node, dict):
        return {
            key: template.text(f"{{{{ .Values.autoscaler.{_COUNTS[key]}Replicas }}}}")
            if key in _COUNTS
            else replaced(template, each, strings)
            for key, each in node.items()
        }
    if isinstance(node, list):
        return [replaced(template, each, strings) for each in node]
    if not isinstance(node, str):
        return node
    if node in strings:
        return template.text(strings[node])
    return node.replace('namespace="ferry"', f'namespace="{template.text("{{ .Release.Namespace }}")}"')


# --- the chart ---


class Chart:
    """What kustomize renders of the base, and of the base with each component."""

    def __init__(self) -> None:
        self.base = render()
        self.variants = {name: render([name]) for name in COMPONENTS}
        self.version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        self._spec = self.base[_DEPLOYMENT]["spec"]["template"]["spec"]
        (self._container,) = self._spec["containers"]

    def values(self) -> dict[str, Any]:
        repository, _, tag = self._container["image"].partition(":")
        scaler = self.base[_AUTOSCALER]["spec"]
        return {
            "image": {"repository": repository, "tag": tag, "digest": ""},
            "replicas": None,  # where there is no autoscaler
            "autoscaler": {
                "enabled": True,
                **{f"{each}Replicas": scaler[f"{each}Replicas"] for each in ("min", "max")},
            },
            "env": [],
            "resources": self._container["resources"],
            "strategy": self.base[_DEPLOYMENT]["spec"]["strategy"],
            "nodeSelector": {},
            "tolerations": [],
            "affinity": {},
            "serviceAccount": {"annotations": {}},
            "components": {flag(name): {"enabled": False, **STRINGS.get(name, {})} for name in COMPONENTS},
        }

    def gpu_values(self) -> dict[str, Any]:
        """Those that render what the overlay for GPUs does."""
        deployment = render(base=K8S / "overlays" / "gpu")[_DEPLOYMENT]["spec"]
        spec = deployment["template"]["spec"]
        return {
            "image": {"tag": spec["containers"][0]["image"].partition(":")[2]},
            "autoscaler": {"enabled": False},
            "resources": spec["containers"][0]["resources"],
            **{name: deployment[name] for name in ("replicas", "strategy")},
            **{name: spec[name] for name in ("nodeSelector", "tolerations")},
        }

    def templates(self) -> dict[str, str]:
        """The text of each template by its file name."""
        made = {"_parts.tpl": _PARTS, "checks.yaml": self._checks()}
        for (kind, name), manifest in self.base.items():
            made[f"{kind.lower()}-{name}.yaml"] = self._of_base((kind, name), manifest)
        for component, manifests in self.variants.items():
            for kind, name in manifests.keys() - self.base.keys():
                made[f"{component}-{kind.lower()}-{name}.yaml"] = self._of_component(component, (kind, name))
        return made

    def _checks(self) -> str:
        lines = []
        for group in EITHER:
            on = " ".join(f"(ternary 1 0 {enabled(name)})" for name in group)
            text = f"of the components {', '.join(map(flag, group))} only one can be enabled"
            lines.append(f'{{{{- if gt (add {on}) 1 }}}}{{{{ fail "{text}" }}}}{{{{ end }}}}')
        text = "replicas needs autoscaler.enabled=false: the autoscaler owns the count"
        lines.append(
            f'{{{{- if and (include "ferry.replicas" .) {_WITH_AUTOSCALER} }}}}{{{{ fail "{text}" }}}}{{{{ end }}}}'
        )
        return "\n".join(lines) + "\n"

    def _of_base(self, key: Key, manifest: Manifest) -> str:
        template = Template()
        with_it = {name: each[key] for name, each in self.variants.items() if key in each}
        made = merged(template, deepcopy(manifest), with_it, partial(self._put, template))
        condition = ""
        if key == _DEPLOYMENT:
            self._put_values(template, made)
        elif key == _AUTOSCALER:
            condition = _WITH_AUTOSCALER
            made = replaced(template, made, {})
        elif key[0] == "ServiceAccount":
            made["metadata"] = {template.line(_ANNOTATIONS): None, **made["metadata"]}
        if any(key not in each for name, each in self.variants.items() if not (condition and name in EITHER[0])):
            raise ValueError(f"a component takes {key} away; a chart can only add")
        text = template.written(made)
        return f"{{{{- if and {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text

    def _of_component(self, component: str, key: Key) -> str:
        template = Template()
        changing = [other for other in COMPONENTS if component in CHANGES.get(other, ())]
        variants = {other: render([component, other])[key] for other in changing}
        made = merged(template, self.variants[component][key], variants, partial(self._put, template))
        text = template.written(self._put(template, [component], made))
        return f"{{{{- if {enabled(component)} }}}}\n{text}{{{{- end }}}}\n"

    def _put(self, template: Template, components: Sequence[str], node: Any) -> Any:
        strings = {
            text: f"{{{{ .Values.components.{flag(component)}.{name} | quote }}}}"
            for component in components
            for name, text in STRINGS.get(component, {}).items()
        }
        return replaced(template, node, {**strings, self._container["image"]: '{{ include "ferry.image" . }}'})

    def _put_values(self, template: Template, deployment: Manifest) -> None:
        """Values in place of what the base has, and beside it."""
        spec = deployment["spec"]
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        container["image"] = template.text('{{ include "ferry.image" . }}')
        container["resources"] = template.value("resources")
        container["env"] = [*container["env"], template.line(_OWN_ENV)]
        spec["strategy"] = template.value("strategy")
        spec[template.line(_REPLICAS)] = None
        for name in ("nodeSelector", "tolerations", "affinity"):
            pod[template.line(_optional(name))] = None


_PARTS = """{{- define "ferry.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}{{ end }}
{{- end }}

{{- define "ferry.replicas" -}}
{{- if not (kindIs "invalid" .Values.replicas) }}given{{ end }}
{{- end }}
"""

#: A component for autoscaling takes the place of the base's autoscaler, and owns the count of an overlay.
_WITH_AUTOSCALER = f"(not (or {' '.join(map(enabled, EITHER[0]))})) .Values.autoscaler.enabled"

_REPLICAS = f"""{{{{- if and (include "ferry.replicas" .) (not (or {" ".join(map(enabled, EITHER[0]))})) }}}}
  replicas: {{{{ .Values.replicas }}}}
{{{{- end }}}}"""

_OWN_ENV = """{{- with .Values.env }}
{{- toYaml . | nindent @ }}
{{- end }}"""


def _optional(name: str) -> str:
    return f"{{{{- with .Values.{name} }}}}\n      {name}: {{{{- toYaml . | nindent 8 }}}}\n      {{{{- end }}}}"


_ANNOTATIONS = """{{- with .Values.serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
{{- end }}"""


def schema(value: Any, path: str = "") -> dict[str, Any]:
    """The JSON schema of values with these defaults: a name that there is not is an error."""
    if path in {"resources", "strategy", "nodeSelector", "affinity", "serviceAccount.annotations"}:
        return {"type": "object"}  # Kubernetes' own
    if isinstance(value, dict):
        fields = {name: schema(each, f"{path}.{name}".lstrip(".")) for name, each in value.items()}
        return {"type": "object", "properties": fields, "additionalProperties": False}
    if isinstance(value, list):
        return {"type": "array", "items": {"type": "object"}}
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return {"type": ["integer", "null"], "minimum": 0}
    return {"type": "boolean" if isinstance(value, bool) else "string"}


_HEAD = """# Of the chart that `python -m k8s.chart` writes from k8s/: docs/deploy.md, "Helm".
# image.digest (sha256:...) goes before the tag. replicas: where there is no autoscaler. env: FERRY_* variables, as
# {name: ..., value: ...}. mutualTls has operatorPort and tls in it, and takes tls.secret. What a component needs stands
# in k8s/components/NAME/kustomization.yaml. For a GPU for each pod: --values values-gpu.yaml.
"""


def write(folder: Path) -> None:
    chart = Chart()
    shutil.rmtree(folder / "templates", ignore_errors=True)  # of an earlier state of k8s/
    (folder / "templates").mkdir(parents=True)
    about = {
        "apiVersion": "v2",
        "name": "ferry",
        "type": "application",
        "description": "Serves TensorFlow SavedModels in dynamic batches",
        "kubeVersion": ">=1.27.0-0",
        "version": chart.version,
        "appVersion": chart.version,
    }
    values = chart.values()
    (folder / "Chart.yaml").write_text(yaml.safe_dump(about, sort_keys=False))
    (folder / "values.yaml").write_text(_HEAD + yaml.safe_dump(values, sort_keys=False))
    (folder / "values-gpu.yaml").write_text(yaml.safe_dump(chart.gpu_values(), sort_keys=False))
    whole = {"$schema": "https://json-schema.org/draft-07/schema#", **schema(values)}
    whole["properties"]["global"] = {"type": "object"}  # Helm's own
    (folder / "values.schema.json").write_text(json.dumps(whole, indent=2) + "\n")
    for name, text in chart.templates().items():
        (folder / "templates" / name).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
