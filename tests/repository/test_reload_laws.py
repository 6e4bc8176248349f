"""The laws of lists: whatever is put, deleted, listed, loaded and unloaded, what is served is what was asked for."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.core.errors import InvalidRequest, ModelNotFound, ModelNotReady, ServingError
from app.repository.model_config import ModelConfig
from app.repository.model_sources import ModelList
from app.repository.version_policy import All, Latest, Specific
from tests.repository.fakes import BROKEN, FakeLoader, add, repository_of
from tests.support.waiting import until

NAMES = ("a", "b")
VERSIONS = st.integers(1, 4)
POLICIES = st.one_of(
    st.builds(Latest, st.integers(1, 3)),
    st.builds(All),
    st.builds(Specific, st.frozensets(VERSIONS, min_size=1)),
)
LISTS = st.dictionaries(
    st.sampled_from(NAMES), st.tuples(POLICIES, st.dictionaries(st.sampled_from(["x", "y"]), VERSIONS, max_size=1))
)


class Lists(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        for name in NAMES:
            (self.folder / name).mkdir()
        self.files: dict[str, dict[int, bool]] = {name: {} for name in NAMES}
        self.configs: dict[str, ModelConfig] = {}
        self.cancelled: set[str] = set()
        self.loader = FakeLoader()
        self.runner = asyncio.Runner()
        self.models = repository_of(ModelList([]), self.loader)
        self.settled = False
        self.writes = 0
        self._settle(self.models.poll_once())

    @rule(name=st.sampled_from(NAMES), version=VERSIONS, good=st.booleans())
    def put(self, name: str, version: int, good: bool) -> None:
        self.writes += 1
        add(self.folder, name, version, (b"good" if good else BROKEN) + b"." * self.writes)
        self.files[name][version] = good
        self.settled = False

    @rule(name=st.sampled_from(NAMES), version=VERSIONS)
    def delete(self, name: str, version: int) -> None:
        shutil.rmtree(self.folder / name / str(version), ignore_errors=True)
        self.files[name].pop(version, None)
        self.settled = False

    @rule()
    def look(self) -> None:
        self._settle(self.models.poll_once())

    @rule(listed=LISTS)
    def reload(self, listed: dict[str, tuple[Latest | All | Specific, dict[str, int]]]) -> None:
        configs = [ModelConfig(name, self.folder / name, *policy) for name, policy in listed.items()]
        before = {name: self._open(name) for name in NAMES}
        try:
            self._settle(self.models.reload(configs))
        except InvalidRequest:
            assert {name: self._open(name) for name in NAMES} == before, "a list that is rejected changes nothing"
            return
        except (ModelNotFound, ModelNotReady):
            new = [config.name for config in configs if config.name not in self.configs.keys() - self.cancelled]
            assert any(not self._open(name) for name in new)
        self.configs = {config.name: config for config in configs}
        self.cancelled.clear()

    @rule(name=st.sampled_from(NAMES))
    def load(self, name: str) -> None:
        self.cancelled.discard(name)
        try:
            self._settle(self.models.load(name))
            assert self._open(name)
        except ServingError:
            assert not self._open(name)

    @rule(name=st.sampled_from(NAMES))
    def unload(self, name: str) -> None:
        try:
            self._settle(self.models.unload(name), looked=self.settled)
        except ModelNotFound:
            assert name not in self.configs
            return
        self.cancelled.add(name)

    @invariant()
    def what_is_not_listed_or_was_unloaded_is_not_served(self) -> None:
        for name in NAMES:
            if name not in self.configs or name in self.cancelled:
                assert not self._open(name)

    @invariant()
    def a_label_leads_to_its_version_or_to_none(self) -> None:
        for name, config in self.configs.items():
            for label, version in config.labels.items():
                try:
                    assert self.models.resolve(name, label=label).version == version
                except (ModelNotFound, ModelNotReady):
                    assert version not in self._open(name)

    @precondition(lambda self: self.settled)
    @invariant()
    def what_the_policy_wants_is_served(self) -> None:
        for name in self.configs.keys() - self.cancelled:
            files, loaded = self.files[name], self._open(name)
            candidates = {version for version, good in files.items() if good} | (loaded & files.keys())
            wanted = self.configs[name].policy(candidates)
            if wanted:
                assert loaded == wanted
            elif not files:
                assert not loaded

    def teardown(self) -> None:
        self.runner.run(self.models.close())
        self.runner.close()
        shutil.rmtree(self.folder)
        assert all(model.closed == 1 for model in self.loader.made), "every model is closed exactly once"

    def _settle(self, change: Awaitable[None], *, looked: bool = True) -> None:
        """`looked`: the change looks at the disk, or what is there was seen before."""

        async def settle() -> None:
            try:
                await change
            finally:
                await until(self._at_rest)  # a change waits for its own model only, and for no unload

        self.runner.run(settle())
        self.settled = looked

    def _at_rest(self) -> bool:
        return not self.models._tasks.under_way and not self.models._reconciler._unloading

    def _open(self, name: str) -> set[int]:
        return {model.version for model in self.loader.made if model.name == name and not model.closed}


TestLists = Lists.TestCase
TestLists.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
