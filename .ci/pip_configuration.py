"""Turns `pip config list` on stdin into a pip.conf that also holds inside a container.

Locations on this machine's disk do not exist there and are left out.
"""

import ast
import sys

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
CARRIED = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout", "retries")


def carried(line: str) -> tuple[str, str] | None:
    name, _, quoted = line.strip().partition("=")
    key = name.rpartition(".")[2]
    kept = [word for word in ast.literal_eval(quoted).split() if not word.startswith(("/", "file:"))]
    return (key, " ".join(kept)) if key in CARRIED and kept else None


def main() -> None:
    environment_first = sorted(sys.stdin, key=lambda line: not line.startswith(":env:"))
    settings = dict(filter(None, map(carried, reversed(environment_first))))
    settings["cert"] = CERTIFICATES
    sys.stdout.write("\n".join(["[global]", *(f"{key} = {value}" for key, value in settings.items())]) + "\n")


if __name__ == "__main__":
    main()
