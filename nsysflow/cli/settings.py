"""Options that stand in a file: `nsysflow.toml`, or `[tool.nsysflow]` of a pyproject.toml.

    [profile]
    backtrace = "all"
    trace = "cuda,nvtx,cublas"

    [analyze]
    framework-gap-us = 30

    [check]
    max = ["step_ms<=5", "idle_pct<5"]

The file in the nearest folder counts, from the current one upwards. The command line overrides it:
`--no-FLAG` switches off a flag that it sets. A relative path in it starts at the file's folder.
"""

import json
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from nsysflow.base.errors import SettingsError, nearest
from nsysflow.cli.options import Command

OWN_FILE: Final = "nsysflow.toml"
PROJECT_FILE: Final = "pyproject.toml"

COMMANDS: Final = ("analyze", "bench", "check", "profile")
"""The commands that have a table in the file."""

_FOUND: Final = "nsysflow.settings"
"""Where a context keeps its settings."""

_HELP: Final = frozenset({"-h", "--help"})

_STDOUT: Final = "-"

_PROGRAMS: Final = frozenset({"nsys"})
"""Options whose path is a program's: a bare name is looked up on PATH, as a shell does."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a settings file holds for one command."""

    file: Path
    command: str
    values: Mapping[str, Any]
    """As the file has them, by the option's name without dashes in front."""

    @property
    def heading(self) -> str:
        """The command's table as the file writes it."""
        return _heading(self.file, self.command)


def configured(command: type[click.Command] = Command) -> type[click.Command]:
    """The command class, with a settings file's options as defaults.

    Each flag gets a switch that turns it off, which only the command line takes and `-h` leaves
    out. Making a context raises SettingsError for a file that `settings_of` or an option refuses;
    `-h` and completion do not read the file.
    """

    class Configured(command):  # type: ignore[misc, valid-type]
        def make_context(
            self,
            info_name: str | None,
            args: list[str],
            parent: click.Context | None = None,
            **extra: Any,
        ) -> click.Context:
            options = _options_of(self)
            unread = _asks_for_help(args) or extra.get("resilient_parsing")
            settings = None if unread else settings_of(str(self.name), Path.cwd(), options)
            defaults = {} if settings is None else _defaults(settings, options)
            try:
                made: click.Context = super().make_context(
                    info_name, args, parent, **{"default_map": defaults, **extra}
                )
            except click.BadParameter as error:
                if settings is None or not _is_from_file(error):
                    raise
                raise SettingsError(_refused(error, settings)) from error
            made.meta[_FOUND] = settings
            return made

        def make_parser(self, ctx: click.Context) -> Any:  # its class is click's own
            parser = super().make_parser(ctx)
            for flag, option in _options_of(self).items():
                if option.is_flag:
                    parser.add_option(
                        obj=option,
                        opts=[off_switch(flag)],
                        dest=option.name,
                        action="store_const",
                        const=False,
                    )
            return parser

    return Configured


def off_switch(flag: str) -> str:
    """What turns a flag off: `--no-force` for `force`, `--files` for `no-files`."""
    return f"--{flag.removeprefix('no-')}" if flag.startswith("no-") else f"--no-{flag}"


def place_of(ctx: click.Context, param: str, text: str) -> str:
    """The file and line that a value of a parameter stands in; empty if it was typed."""
    settings: Settings | None = ctx.meta.get(_FOUND)
    if (
        settings is None
        or ctx.get_parameter_source(param) is not click.core.ParameterSource.DEFAULT_MAP
    ):
        return ""
    lines = settings.file.read_text(encoding="utf-8").splitlines()
    number = next((at for at, line in enumerate(lines, 1) if text in line), None)
    return f"{settings.file}:{number}" if number else str(settings.file)


def settings_of(command: str, folder: Path, known: Mapping[str, click.Option]) -> Settings | None:
    """The options of `command` that a settings file in or above `folder` holds.

    Args:
        command: which command's table.
        folder: where to begin.
        known: the options that the command has, by name without dashes in front.

    Returns:
        None where there is no settings file.

    Raises:
        SettingsError: the file is no TOML, holds something else than the tables of `COMMANDS`,
            names an option that the command does not have, or gives one a value of another type.
    """
    for place in (folder, *folder.parents):
        for file, path in ((place / OWN_FILE, ()), (place / PROJECT_FILE, ("tool", "nsysflow"))):
            table = _table(file, path)
            if table is not None:
                _check_tables(table, file)
                held = {
                    name.replace("_", "-"): value for name, value in table.get(command, {}).items()
                }
                settings = Settings(file=file, command=command, values=held)
                _check_options(settings, known)
                return settings
    return None


def _options_of(command: click.Command) -> dict[str, click.Option]:
    return {
        word.removeprefix("--"): param
        for param in command.params
        for word in param.opts
        if isinstance(param, click.Option) and word.startswith("--")
    }


def _asks_for_help(args: list[str]) -> bool:
    """Whether `-h` is typed for us; after `--` it is the program's."""
    ours = args[: args.index("--")] if "--" in args else args
    return not _HELP.isdisjoint(ours)


def _table(file: Path, path: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The table at `path` of a TOML file; None where there is no file to be read, or no table."""
    try:
        table: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        return None  # a folder above may be another user's
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{file} is not valid TOML: {error}. Correct that line, or remove the file"
        raise SettingsError(msg) from error
    for key in path:
        table = table.get(key)
        if table is None:
            return None
        _must_be_table(table, key, file)
    return table  # type: ignore[no-any-return]  # checked above


def _must_be_table(value: object, name: str, file: Path) -> None:
    if not isinstance(value, dict):
        msg = (
            f"{file}: {name} = {_shown(value)} must be a table that holds options, such as\n"
            f"  {_heading(file, 'profile')}\n  osrt = true"
        )
        raise SettingsError(msg)


def _check_tables(tables_of_file: Mapping[str, Any], file: Path) -> None:
    """Refuse what is not the table of a command: nothing would ever read it."""
    for name, value in tables_of_file.items():
        if name in COMMANDS:
            _must_be_table(value, name, file)
            continue
        tables = ", ".join(_heading(file, command) for command in COMMANDS)
        if isinstance(value, dict):
            seen = f"no command reads the table {name}{_perhaps(name, COMMANDS)}"
        else:
            seen = f"{name} = {_shown(value)} is outside the table of a command."
        msg = f"{file}: {seen} Put options into the table of their command: {tables}"
        raise SettingsError(msg)


def _check_options(settings: Settings, known: Mapping[str, click.Option]) -> None:
    for name, value in settings.values.items():
        if name not in known:
            msg = (
                f"{settings.file}: nsysflow {settings.command} has no option --{name}"
                f"{_perhaps(name, known)} See what it has:\n  nsysflow {settings.command} -h"
            )
            raise SettingsError(msg)
        wanted = _wanted(known[name], value)
        if wanted is not None:
            msg = (
                f"{settings.file}: {name} = {_shown(value)} in {settings.heading} must be {wanted}"
            )
            raise SettingsError(msg)


def _wanted(option: click.Option, value: object) -> str | None:
    """What the value must be instead, where it is of a type that the option does not take, or holds
    what no path and no command line can."""
    types, expected = _types_of(option)
    if any(isinstance(item, str) and "\0" in item for item in _listed(value)):
        return "text without null bytes"
    if not option.multiple:
        return None if type(value) in types else expected  # exact: Python's bool is an int
    if all(type(item) in types for item in _listed(value)):
        return None
    return f"a list in brackets, each of it {expected}"


def _listed(value: object) -> list[Any]:
    """What a repeatable option holds: a list, or one value."""
    return value if isinstance(value, list) else [value]


def _types_of(option: click.Option) -> tuple[frozenset[type], str]:
    """Which of TOML's types an option takes, one value of it, and how to say that."""
    if option.is_flag:
        return frozenset({bool}), "true or false"
    match option.type:
        case click.types.IntParamType():
            return frozenset({int}), "a whole number"
        case click.types.FloatParamType():
            return frozenset({int, float}), "a number"
        case click.types.StringParamType():  # some are numbers in disguise: 1.5 us, read exactly
            return frozenset({str, int, float}), "text in quotes, or a number"
    return frozenset({str}), "text in quotes"


def _defaults(settings: Settings, known: Mapping[str, click.Option]) -> dict[str, Any]:
    """The values as click wants its defaults: by parameter, with paths that hold from anywhere."""
    return {
        str(known[name].name): _default(known[name], name, value, settings.file.parent)
        for name, value in settings.values.items()
    }


def _default(option: click.Option, name: str, value: Any, folder: Path) -> Any:
    held = _listed(value) if option.multiple else value
    return _located(name, held, folder) if isinstance(option.type, click.Path) else held


def _located(name: str, value: Any, folder: Path) -> Any:  # a path, or a list of them
    if isinstance(value, list):
        return [_located(name, item, folder) for item in value]
    if value == _STDOUT or (name in _PROGRAMS and Path(value).name == value):
        return value
    return str(folder / value)


def _is_from_file(error: click.BadParameter) -> bool:
    if error.ctx is None or error.param is None or error.param.name is None:
        return False
    source = error.ctx.get_parameter_source(error.param.name)
    return source is click.core.ParameterSource.DEFAULT_MAP


def _refused(error: click.BadParameter, settings: Settings) -> str:
    """What click, or an option's callback, says of a value, with the place where it stands."""
    words = error.param.opts if error.param is not None else []
    name = next(word.removeprefix("--") for word in words if word.startswith("--"))
    return f"{settings.file}: {name} in {settings.heading}: {error.message.rstrip('.')}"


def _heading(file: Path, command: str) -> str:
    inside = "tool.nsysflow." if file.name == PROJECT_FILE else ""
    return f"[{inside}{command}]"


def _perhaps(name: str, known: Collection[str]) -> str:
    """The end of a sentence about an unknown name: what it may have meant."""
    near = nearest(name, known, most=1)
    return f"; did you mean {near[0]}?" if near else "."


def _shown(value: object) -> str:
    """A value as TOML writes it, nearly."""
    return json.dumps(value, default=str, ensure_ascii=False)
