"""The laws of keeping memory in step with the disk, under random comings and goings."""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.core.errors import ServingError
from tests.repository.fakes import BROKEN, FakeLoader, FakeModel, add, repository

NAMES = st.sampled_from(["a", "b"])
VERSIONS = st.integers(1, 4)


class Reconciliation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.load = FakeLoader()
        self.runner = asyncio.Runner()
        self.models = repository(self.folder, self.load)
        self.disk: dict[str, dict[int, bool]] = {"a": {}, "b": {}}
        self.settled = False
        self.writes = 0

    @rule(name=NAMES, version=VERSIONS, good=st.booleans())
    def put(self, name: str, version: int, good: bool) -> None:
        self.writes += 1
        self._drop(name, version)
        add(self.folder, name, version, (b"good" if good else BROKEN) + b"." * self.writes)
        self.disk[name][version] = good
        self.settled = False

    @rule(name=NAMES, version=VERSIONS)
    def delete(self, name: str, version: int) -> None:
        self._drop(name, version)
        self.settled = False

    @rule(name=NAMES)
    def delete_model(self, name: str) -> None:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        self.disk[name].clear()
        self.settled = False

    @rule()
    def look(self) -> None:
        async def settle() -> None:
            await self.models.poll_once()
            for _ in range(3):  # the unloads it started
                await asyncio.sleep(0)

        self.runner.run(settle())
        self.settled = True

    @invariant()
    def what_is_resolved_is_open(self) -> None:
        for name in self.disk:
            model = self._resolved(name)
            assert model is None or (model.closed == 0 and model.name == name)

    @precondition(lambda self: self.settled)
    @invariant()
    def the_newest_good_version_is_served(self) -> None:
        for name, versions in self.disk.items():
            model = self._resolved(name)
            loaded = {made.version for made in self.load.made if made.name == name and made.closed == 0}
            candidates = {version for version, good in versions.items() if good} | (loaded & versions.keys())
            if candidates:
                assert model is not None
                assert model.version == max(candidates)
            elif not versions:
                assert model is None
            assert loaded == ({model.version} if model else set()), "one version in memory, no more"

    def teardown(self) -> None:
        self.runner.run(self.models.close())
        self.runner.close()
        shutil.rmtree(self.folder)
        assert all(model.closed == 1 for model in self.load.made), "every model is closed exactly once"

    def _drop(self, name: str, version: int) -> None:
        shutil.rmtree(self.folder / name / str(version), ignore_errors=True)
        self.disk[name].pop(version, None)

    def _resolved(self, name: str) -> FakeModel | None:
        try:
            return cast(FakeModel, self.models.resolve(name))
        except ServingError:
            return None


TestReconciliation = Reconciliation.TestCase
TestReconciliation.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
