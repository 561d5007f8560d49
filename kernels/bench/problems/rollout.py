"""Shapes and inputs of a rollout of reinforcement learning, shared by several kernels."""

from typing import Final

from torch import Tensor

from nsysflow.kernels.bench.problem import Random, Shape
from nsysflow.kernels.select_copy import Rollout

SHAPE: Final = {"S": 8192, "T": 64, "mb": 512, "D": 96, "A": 4, "H": 128}
TOY: Final = {"S": 24, "T": 11, "mb": 6, "D": 5, "A": 3, "H": 12}

SEGMENTS: Final = ("S", "mb")
"""A minibatch is a sixteenth of the segments, so a sweep varies both together."""


def only(shape: Shape, *symbols: str) -> Shape:
    """The part of a shape with these symbols."""
    return {name: shape[name] for name in symbols}


def steps_of(shape: Shape, random: Random) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """values, rewards, done and ratio, (S, T). Ratios are on both sides of 1; some episodes end."""
    size = (shape["S"], shape["T"])
    values, rewards = random.normal(*size), random.normal(*size)
    done = random.ones_with_chance(0.02, *size)
    return values, rewards, done, random.normal(*size, scale=0.3).exp()


def rollout_of(shape: Shape, random: Random, values: Tensor, advantages: Tensor) -> Rollout:
    """A rollout with random observations and float64 actions."""
    steps = (shape["S"], shape["T"])
    return Rollout(
        obs=random.normal(*steps, shape["D"]),
        actions=random.below(18, *steps, shape["A"]).double(),
        logprobs=random.normal(*steps),
        values=values,
        advantages=advantages,
    )
