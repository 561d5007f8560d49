"""The guide for coding agents, as Markdown with the front matter that skill files have."""

from importlib.resources import files


def skill() -> str:
    """The guide."""
    return files("nsysflow.agents").joinpath("skill.md").read_text(encoding="utf-8")
