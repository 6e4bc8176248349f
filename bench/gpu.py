"""Ferry on a GPU, in ten minutes: python -m bench.gpu [PART ...] [--minutes 9] [--json FILE] [--dry-run] [--quick]

    throughput  Ferry's engine beside bare loops: rows of a request, batches in flight
    copies      inputs on their way to the GPU: pageable, page-locked, beside computation
    variants    plain, frozen and XLA
    precision   float32, TF32 and bfloat16, in speed and in how far answers lie apart
    replicas    one model on several GPUs

Each part has a process and a share of the time of its own, says what was predicted, takes turns with what it is
compared with (A B A B), and gives ratios of the same round: median (least-most). A part that is ended keeps what it
found. While it runs nvidia-smi is read. Without a GPU nothing is measured and the command ends with 2, unless --dry-run
is given: then all of it runs on the CPU, and whatever needs a GPU is listed as not measured. Ends with 1 if a part
failed or an answer lies outside of its bound. docs/benchmark.md says how to bring it to a machine without a network.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from app.runtimes.tensorflow.start import load_libraries
from app.server.memory import keep_freed_memory
from bench.gpu_parts.models import DRY_WIDTH, MODELS, WIDTH, ensure_models
from bench.gpu_parts.monitor import Monitor, Watched
from bench.gpu_parts.report import DRY_RUN, Report
from bench.gpu_parts.turns import Turns
from bench.support.cache import CACHE, ROOT
from bench.support.figures import save
from bench.support.machine import commit, load_average, machine_line, version_of

#: By part, its share of the time. Chosen: throughput has 27 ways in a round for each model.
SHARES = {"throughput": 8, "copies": 3, "variants": 4, "precision": 3, "replicas": 2}

#: Looks at the device alone, before anything is made for it.
LOOK = "device"

#: Seconds for which a part may go on when its time is over: the round that it is in, and unloading.
_GRACE_S = 20.0

#: The most that a part may take where only whether it works is asked.
_QUICK_S = 280.0

#: A part is not begun with less: TensorFlow's import takes as long.
_LEAST_S = 4.0

#: Seconds to try a model and make it faster, of a part's time and at least: what does not fit goes on in rounds of 2, 4
#: and 8 times as long. Of each new shape the first call takes up to 1.2 s on a GPU.
_LOAD_SHARE, _LEAST_LOAD_S = 1 / 100, 10.0

#: Exit codes.
_MISSED, _NO_GPU = 1, 2


def main() -> None:
    options = _options()
    if options.part:
        run_part(options)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("The measurement was stopped"))  # the part's process ends, too
    names = options.parts or list(SHARES)
    until_s = time.monotonic() + 60 * options.minutes
    head = {
        "machine": machine_line(), "commit": commit(), "tensorflow": version_of("tensorflow"), "dry_run": False,
        "minutes": options.minutes, "device": {}, "parts": {},
    }  # fmt: skip
    print(f"{head['machine']}, tensorflow {head['tensorflow']}, Ferry {head['commit']}, load {load_average():.1f}")
    with tempfile.TemporaryDirectory() as folder:
        parts = Parts(options, Path(folder))

        # 1. Is there a GPU?
        looked = parts.run(LOOK, 60.0)
        if not looked["done"]:
            sys.exit(_NO_GPU)
        head |= {"dry_run": looked["on"] != "GPU", "device": looked.get("facts", {})}
        if head["dry_run"]:
            print(f"\n{'=' * 100}\n{DRY_RUN}.\n{'=' * 100}", flush=True)

        # 2. The parts, each with its share of what is left.
        width = DRY_WIDTH if head["dry_run"] else WIDTH
        ensure_models(parts.models, width, options.models)
        for number, name in enumerate(names):
            rest = sum(SHARES[each] for each in names[number:])
            share_s = (until_s - time.monotonic()) * SHARES[name] / rest
            head["parts"][name] = parts.run(name, _QUICK_S if options.quick else share_s)
            save(options.json, head)
    sys.exit(_summary(head["parts"], head["dry_run"]))


class Parts:
    """Runs parts in processes of their own: TensorFlow keeps its devices, threads and memory as long as it lives."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._monitor = Monitor()
        self.models = Path(options.folder)

    def run(self, name: str, seconds: float) -> dict[str, Any]:
        """What it found, with what the GPU said meanwhile, and `failed`: why it did not come to its end, or empty."""
        options, file = self._options, self._folder / f"{name}.json"
        command = [sys.executable, "-m", "bench.gpu", "--part", name, "--seconds", f"{seconds:.1f}"]
        command += ["--json", str(file), "--folder", str(self.models), "--slice", str(options.slice)]
        command += ["--search", options.search, "--models", *options.models]
        command += [flag for flag in ("--dry-run", "--quick") if getattr(options, flag[2:].replace("-", "_"))]
        if seconds < _LEAST_S:
            print(f"\n{name}\n  NOT MEASURED: all of it, because no time was left", flush=True)
            return {"part": name, "seconds": 0.0, "failed": f"was not begun: {seconds:.0f} s were left"}
        print(f"\n{name}, {seconds:.0f} s" if name != LOOK else "", flush=True)
        begin_s = time.monotonic()
        with self._monitor.watching() as watched:
            failed = _ended(command, seconds + _GRACE_S, _environment(name == LOOK))
        if name != LOOK:
            _tell_gpu(watched, self._monitor.missing)
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"part": name, "done": False}
        found |= {"gpu": watched, "seconds": time.monotonic() - begin_s, "failed": failed}
        if not watched:
            found.setdefault("not_measured", []).append({"what": "GPU metrics", "why": self._monitor.missing})
        if failed:
            print(f"  FAILED: {name} {failed}", flush=True)
        return found


def _ended(command: Sequence[str], most_s: float, environment: Mapping[str, str]) -> str:
    """Runs a command. Returns why it did not come to its end; empty if it did."""
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        code = process.wait(most_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return f"was ended after {most_s:.0f} s; what it found until then is kept"
    except BaseException:
        process.kill()
        process.wait()
        raise
    return "" if code == 0 else f"ended with {signal.Signals(-code).name if code < 0 else code}"


def _environment(talkative: bool) -> dict[str, str]:
    """XLA finds what assembles its kernels; when only the device is looked at, TensorFlow says why it sees none."""
    level = "0" if talkative else "3"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": level}
    assembler = Path(sys.prefix) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages/nvidia/cuda_nvcc"
    if assembler.is_dir():
        environment.setdefault("XLA_FLAGS", f"--xla_gpu_cuda_data_dir={assembler}")
    return environment


def _tell_gpu(watched: Watched, missing: str) -> None:
    if missing or not watched:
        print(f"  NOT MEASURED: GPU metrics, because {missing}", flush=True)
        return
    print("  GPU, median (most): " + "; ".join(f"{name} {mid:g} ({most:g})" for name, (mid, most) in watched.items()))


def _summary(parts: Mapping[str, Mapping[str, Any]], dry_run: bool) -> int:
    """Prints what was not measured, and what is wrong. Returns the exit code."""
    print("\nSummary")
    wrong = 0
    for name, found in parts.items():
        outside = [each for each in found.get("bounds", ()) if not each["within"]]
        figures = len(found.get("figures", ()))
        wrong += len(outside) + bool(found["failed"])
        print(
            f"  {name:12} {found['seconds']:5.0f} s, {figures} figures, {len(outside)} outside of their bounds"
            f"{', FAILED: it ' + found['failed'] if found['failed'] else ''}"
        )
        for each in outside:
            print(f"    OUTSIDE OF ITS BOUND: {each['what']}: {each['value']:.1e}, bound {each['bound']:.1e}")
        for each in found.get("not_measured", ()):
            print(f"    NOT MEASURED: {each['what']}, because {each['why']}")
    if dry_run:
        print(f"\n{'=' * 100}\n{DRY_RUN}.\n{'=' * 100}")
    return _MISSED if wrong else 0


def run_part(options: argparse.Namespace) -> None:
    """In its own process: measures, and writes what it finds."""
    keep_freed_memory()  # as a server does, and before TensorFlow is imported
    load_libraries()
    turns = Turns(time.perf_counter() + options.seconds, options.slice, 1 if options.quick else inf)
    from bench.gpu_parts.device import NoGpu, PartRun, find_device, try_device  # noqa: PLC0415 - it takes seconds

    report = Report(options.part, options.json)
    try:
        device = find_device(options.dry_run, several=options.part == "replicas")
    except NoGpu as error:
        sys.exit(f"NOTHING WAS MEASURED: {error}")
    module = None if options.part == LOOK else importlib.import_module(f"bench.gpu_parts.{options.part}")
    report.begin(module.__doc__ or "" if module else "", device.kind, device.facts)
    if module is None:
        for what, text in (device.facts | try_device(device)).items():
            report.fact(what, text)
    else:
        print(f"{textwrap.indent((module.__doc__ or '').strip(), '  ')}\n", flush=True)
        load_s = max(_LEAST_LOAD_S, options.seconds * _LOAD_SHARE)
        run = PartRun(device, report, turns, options.models, options.folder, options.search, load_s)
        asyncio.run(module.measure(run))
    report.done()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="all, if none is named")
    parser.add_argument("--minutes", type=float, default=9.0, help="of all parts; some seconds more are possible")
    parser.add_argument("--slice", type=float, default=0.2, help="seconds of each way in a round")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--search", default="auto", help="Ferry's execution_variant, such as plain")
    parser.add_argument("--json", type=Path, help="file for everything that was found")
    parser.add_argument("--folder", type=Path, default=CACHE / "gpu", help="where the models are made")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, if there is no GPU")
    parser.add_argument("--quick", action="store_true", help="one round of everything: does it work?")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(SHARES):
        parser.error(f"there is no part {', '.join(sorted(unknown))}, only {', '.join(SHARES)}")
    return options


if __name__ == "__main__":
    main()
