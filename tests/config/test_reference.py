from pathlib import Path

from app.config.reference import settings_reference
from app.config.settings import Settings
from app.config.sources import flag_of, variable

_PAGE = Path(__file__).parents[2] / "docs/settings.md"


def test_the_page_of_settings_is_what_the_definitions_say() -> None:
    hint = "regenerate it: python -m app.config.reference > docs/settings.md"
    assert _PAGE.read_text() == settings_reference(), hint


def test_each_setting_has_one_row_with_flag_variable_default_and_meaning() -> None:
    rows = [line.split(" | ") for line in settings_reference().splitlines() if line.startswith("| `")]
    assert [row[0].strip("| `") for row in rows] == list(Settings.model_fields)
    for name, named_flag, named_variable, default, meaning in rows:
        setting = name.strip("| `")
        assert (named_flag, named_variable) == (f"`{flag_of(setting)}`", f"`{variable(setting)}`")
        assert default
        assert meaning.endswith(". |")


def test_defaults_are_written_as_a_reader_would_type_or_say_them() -> None:
    text = settings_reference()
    assert "| `FERRY_REST_PORT` | `8501` |" in text
    assert "| `FERRY_CORS` | off |" in text
    assert "| `FERRY_BATCH_SIZES` | empty |" in text
    assert "| `FERRY_PAD_SHAPES` | `auto` | `auto`, `always`, `never`. " in text


def test_bounds_are_told() -> None:
    rows = {line.split("`")[1]: line for line in settings_reference().splitlines() if line.startswith("| `")}
    assert rows["max_head_bytes"].endswith("From 1024 to 1048576. |")
    assert rows["keep_alive_s"].endswith("Above 0, at most 3600. |")
    assert rows["frontends"].endswith("At most 256. |")
    assert rows["stuck_after_s"].endswith("seconds. |")
    for name, row in rows.items():
        for bound in (each.le for each in Settings.model_fields[name].metadata if hasattr(each, "le")):
            assert f" {bound}. |" in row
