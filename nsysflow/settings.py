"""Options that stand in a file: `nsysflow.toml`, or `[tool.nsysflow]` of a pyproject.toml.

    [profile]
    backtrace = true
    trace = "cuda,nvtx,cublas"

    [analyze]
    dispatch-us = 30

The nearest folder that has one wins, from the current one upwards. What is typed wins over it.
"""

import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import click

from nsysflow.errors import SettingsError

OWN_FILE: Final = "nsysflow.toml"
PROJECT_FILE: Final = "pyproject.toml"


def configured(command: type[click.Command] = click.Command) -> type[click.Command]:
    """The command class, with a settings file's options as defaults."""

    class Configured(command):  # type: ignore[misc, valid-type]
        def make_context(
            self,
            info_name: str | None,
            args: list[str],
            parent: click.Context | None = None,
            **extra: Any,  # noqa: ANN401
        ) -> click.Context:
            options = {
                word.lstrip("-"): param.name
                for param in self.params
                for word in param.opts
                if isinstance(param, click.Option) and word.startswith("--")
            }
            found = settings_of(str(self.name), Path.cwd(), options)
            defaults = {options[name.replace("_", "-")]: value for name, value in found.items()}
            made: click.Context = super().make_context(
                info_name, args, parent, **{"default_map": defaults, **extra}
            )
            return made

    return Configured


def settings_of(command: str, folder: Path, known: Collection[str]) -> Mapping[str, Any]:
    """The options of `command` that a settings file in or above `folder` holds.

    Args:
        command: which command's table.
        folder: where to begin.
        known: the options that the command has, without dashes in front.

    Raises:
        SettingsError: the file is no TOML, or names an option that the command does not have.
    """
    for place in (folder, *folder.parents):
        for file, path in ((place / OWN_FILE, ()), (place / PROJECT_FILE, ("tool", "nsysflow"))):
            found = _table(file, path)
            if found is not None:
                return _checked(_inner(found, command, file), known, file, command)
    return {}


def _table(file: Path, path: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The table at `path` of a TOML file; None where there is no file to be read, or no table."""
    try:
        found: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        return None  # a folder above may be another user's
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{file} is not valid TOML: {error}. Mend that line, or remove the file"
        raise SettingsError(msg) from error
    for key in path:
        found = found.get(key)
        if found is None:
            return None
        _must_be_table(found, key, file)
    return found  # type: ignore[no-any-return]  # checked above


def _inner(table: Mapping[str, Any], command: str, file: Path) -> Mapping[str, Any]:
    found = table.get(command, {})
    _must_be_table(found, command, file)
    return found  # type: ignore[no-any-return]


def _must_be_table(found: object, name: str, file: Path) -> None:
    if not isinstance(found, dict):
        msg = f"{file}: {name} must be a table of options, as in\n  [{name}]\n  backtrace = true"
        raise SettingsError(msg)


def _checked(
    found: Mapping[str, Any], known: Collection[str], file: Path, command: str
) -> Mapping[str, Any]:
    for name in found:
        if name.replace("_", "-") not in known:
            near = get_close_matches(name, known, n=1)
            perhaps = f"; did you mean {near[0]}?" if near else ""
            msg = (
                f"{file}: nsysflow {command} has no option --{name}{perhaps}"
                f" See what it has:\n  nsysflow {command} -h"
            )
            raise SettingsError(msg)
    return found
