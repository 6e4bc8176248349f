"""Every path, module, name and link on the pages for readers exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config.settings import Settings
from tests.deploy.manifests import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "tests/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SOURCES = ("app", "bench", "clients", "docs", "examples", "k8s", "models", "requirements", "tests", ".ci")
FILES = [path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.is_file()]
NAMES = {path.name for path in FILES} | {path.name for path in ROOT.iterdir()}

#: Where a path on a page may begin.
BASES = (ROOT, ROOT / "app", ROOT / "clients/python")

#: A page of more lines begins with its contents.
LONG_PAGE = 100

URL = re.compile(r"https?://\S+")
PATH = re.compile(r"(?<![\w/.~-])((?:[\w.-]+/)+[\w.-]*[\w-]\.(?:py|md|proto|mjs|sh|in|toml|png))(?![\w/])")
FOLDER = re.compile(r"(?<![\w/.~-])((?:app|tests|docs|bench|clients|k8s)(?:/[\w.-]+)*/)(?![\w.<*…-])")
FILE = re.compile(r"(?<![\w/.*-])([\w-]+\.py)(?!\w)")
MODULE = re.compile(r"(?<![\w/.-])((?:app|bench|ferry_client)(?:\.[a-z]\w*)+)(?![\w(])")
VARIABLE = re.compile(r"\bFERRY_[A-Z_]*[A-Z]\b")
LINK = re.compile(r"\]\(([^)\s]+)\)")

all_pages = pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])


def text_of(page: Path) -> str:
    return URL.sub("", page.read_text())


def headings(page: Path) -> list[str]:
    """All headings of a page; lines within code are none."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#{1,4} (.+)$", prose, re.MULTILINE)


def anchor(heading: str) -> str:
    """As GitHub makes them."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def module_exists(name: str) -> bool:
    """A module, or a name that stands in one."""
    for base in (ROOT, ROOT / "clients/python"):
        parts = name.split(".")
        for length in (len(parts), len(parts) - 1):
            path = base.joinpath(*parts[:length])
            file = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
            if file.is_file() and (length == len(parts) or defines(file, parts[-1])):
                return True
    return False


def defines(file: Path, name: str) -> bool:
    """Does the file define the class, function, method, field or constant?"""
    pattern = r"^\s*(?:class|def|async def) {0}\b|^\s*{0}\b\s*[:=]|^\s+\"?{0}\"?\s*[:=]".format(re.escape(name))
    return re.search(pattern, file.read_text(), re.MULTILINE) is not None


@all_pages
def test_every_path_exists(page: Path) -> None:
    text = text_of(page)
    missing = {
        path
        for path in {*PATH.findall(text), *FOLDER.findall(text)}
        if not any((base / path).exists() for base in (*BASES, page.parent))
    }
    assert not missing


@all_pages
def test_every_file_that_is_named_without_a_folder_exists(page: Path) -> None:
    own = set(re.findall(r"^cat > (\S+)|^# (\S+\.py)", text_of(page), re.MULTILINE))
    shown = {name for names in own for name in names}
    assert {name for name in FILE.findall(text_of(page)) if name not in NAMES} <= shown


@all_pages
def test_every_module_exists(page: Path) -> None:
    assert not {name for name in MODULE.findall(text_of(page)) if not module_exists(name)}


@all_pages
def test_every_variable_sets_something(page: Path) -> None:
    known = {f"FERRY_{name.upper()}" for name in Settings.model_fields} | {"FERRY_CONFIG"}
    known |= {"FERRY_METRICS", "FERRY_PORT"}  # a list in the code; what Kubernetes would set
    assert set(VARIABLE.findall(text_of(page))) <= known


@all_pages
def test_every_link_leads_somewhere(page: Path) -> None:
    missing = []
    for link in LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, fragment = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (fragment and fragment not in map(anchor, headings(target))):
            missing.append(link)
    assert not missing


@all_pages
def test_a_long_page_begins_with_its_contents(page: Path) -> None:
    lines = page.read_text().splitlines()
    if len(lines) <= LONG_PAGE or page.name == "CHANGELOG.md":
        return
    sections = [line[3:] for line in lines if line.startswith("## ")]
    before = page.read_text().partition("\n## ")[0]
    assert [section for section in sections if f"](#{anchor(section)})" not in before] == []


def test_entries_of_the_changelog_are_a_line_each_below_known_headings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    unreleased = text.partition("\n## Unreleased\n")[2].partition("\n## ")[0]
    sections = re.findall(r"^### (.+)$", unreleased, re.MULTILINE)
    order = ["Added", "Changed", "Fixed", "Security", "Removed"]
    assert sections == [each for each in order if each in sections]
    assert not re.findall(r"^ .+", text, re.MULTILINE), "an entry goes on in a second line"
    assert text.count("\n## When you upgrade\n") == 1


def test_the_changelog_tells_nothing_twice() -> None:
    """A rebase may leave a line where it stood before as well."""
    entries = re.split(r"\n(?=- )", (ROOT / "CHANGELOG.md").read_text())
    openings = [" ".join(entry.split())[:60] for entry in entries[1:]]
    assert sorted(openings) == sorted(set(openings))


def test_every_section_that_the_code_names_exists() -> None:
    missing = []
    for file in FILES:
        if file.suffix == ".py":
            for page, section in re.findall(r'docs/((?:[\w-]+/)?[\w-]+\.md)[,:]? \(?"([^"]+)"', file.read_text()):
                text = (ROOT / "docs" / page).read_text()
                if section not in headings(ROOT / "docs" / page) and f"**{section}" not in text:
                    missing.append(f"{file.name}: {page}, {section}")
    assert not missing


def test_every_file_that_the_code_names_exists() -> None:
    """In docstrings and comments too: a file that was moved is named by its new place."""
    files = [*FILES, *ROOT.glob("*.py")]
    known = {"/".join(file.parts[at:]) for file in files for at in range(len(file.parts))}
    missing = set()
    for file in (ROOT / "app").rglob("*.py"):
        for name in re.findall(r"(?<![\w/.<>*-])(?:[\w-]+/)*[\w-]+\.py\b", file.read_text()):
            if name not in known:
                missing.add(f"{file.relative_to(ROOT)}: {name}")
    assert not missing


def rows_of(page: Path, section: str) -> Iterator[list[str]]:
    """The cells of the tables in a section, without head and rule."""
    part = page.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    for number, line in enumerate(lines):
        is_head = number + 1 < len(lines) and lines[number + 1].startswith("|--")
        if not is_head and not line.startswith("|--"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_where_is_names_what_the_files_define() -> None:
    missing, seen = [], 0
    for question, answer in rows_of(ROOT / "docs/architecture.md", "Where is ..."):
        spans = re.findall(r"`([^`]+)`", answer)
        files = [ROOT / span for span in spans if span.startswith(("app/", "tests/", "docs/"))]
        assert files, question
        code = [file for file in files if file.suffix == ".py"]
        for name in (span for span in spans if re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", span)):
            seen += 1
            if not any(all(defines(file, part) for part in name.split(".")) for file in code):
                missing.append(f"{question}: {name}")
    assert not missing
    assert seen > 10


def test_the_picture_of_the_house_shows_every_package() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    picture = re.search(r"^```\n(app/\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert picture
    drawn, above = set(), []
    for line in picture[1].splitlines():
        entry = re.match(r"( *)([\w.]+/)", line)
        if not entry:
            continue
        depth = len(entry[1]) // 2
        above = [*above[:depth], entry[2].rstrip("/")]
        drawn.add("/".join(above))
    packages = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "app").rglob("__init__.py")}
    assert drawn == packages
