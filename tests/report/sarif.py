"""A strict reader of the SARIF that nsysflow writes: the properties of SARIF 2.1.0 that it uses,
those that GitHub requires as such, and no others."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, json

Text = Annotated[str, Meta(min_length=1)]
Short = Annotated[str, Meta(min_length=1, max_length=1024)]
From1 = Annotated[int, Meta(ge=1)]
Uri = Annotated[str, Meta(pattern=r"^(?!/)[A-Za-z0-9_.~/%-]+$")]
"""Relative, and quoted where needed."""


class _Strict(Struct, rename="camel", forbid_unknown_fields=True):
    """An object without other properties."""


class Message(_Strict):
    text: Text


class ShortMessage(_Strict):
    text: Short


class Help(_Strict):
    text: Text
    markdown: Text


class Configuration(_Strict):
    level: Literal["none", "note", "warning", "error"]


class Rule(_Strict):
    id: Text
    name: Annotated[str, Meta(pattern=r"^[A-Z][A-Za-z0-9]{,254}$")]
    short_description: ShortMessage
    full_description: ShortMessage
    help: Help
    default_configuration: Configuration
    properties: dict[str, Any]


class Driver(_Strict):
    name: Text
    version: Text
    rules: list[Rule]


class Tool(_Strict):
    driver: Driver


class Base(_Strict):
    description: Message


class Artifact(_Strict):
    uri: Uri
    uri_base_id: Literal["%SRCROOT%"] | None = None


class Region(_Strict):
    start_line: From1
    start_column: From1
    end_line: From1


class Physical(_Strict):
    artifact_location: Artifact
    region: Region


class Logical(_Strict):
    name: Text
    kind: Literal["function"]


class Location(_Strict):
    physical_location: Physical
    logical_locations: Annotated[list[Logical], Meta(min_length=1)] | None = None
    message: Message | None = None


class Fingerprints(_Strict):
    primary_location_line_hash: Annotated[str, Meta(pattern=r"^[0-9a-f]{16}:[1-9][0-9]*$")]


class Result(_Strict):
    rule_id: Text
    level: Literal["note", "warning"]
    message: Message
    locations: Annotated[list[Location], Meta(min_length=1, max_length=1)]
    partial_fingerprints: Fingerprints
    rank: Annotated[float, Meta(ge=0, le=100)]
    properties: dict[str, Any]
    related_locations: list[Location] = []


class Notification(_Strict):
    level: Literal["note", "warning", "error"]
    message: Message


class Invocation(_Strict):
    execution_successful: bool
    tool_execution_notifications: list[Notification]


class Run(_Strict):
    tool: Tool
    original_uri_base_ids: dict[str, Base]
    invocations: Annotated[list[Invocation], Meta(min_length=1)]
    results: list[Result]
    properties: dict[str, Any]


class Log(_Strict):
    schema: Text = field(name="$schema")
    version: Literal["2.1.0"]
    runs: Annotated[list[Run], Meta(min_length=1, max_length=1)]


def read(text: str) -> Run:
    """The run of a document.

    Raises:
        msgspec.ValidationError: something is missing, unknown, or of another form.
    """
    (run,) = json.decode(text, type=Log).runs
    return run
