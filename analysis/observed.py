"""What our runtime saw a program do, with modules, with products, and in workers of a DataLoader.
No recording tells that.
"""

from typing import Annotated, ClassVar, TypeVar

import msgspec

from nsysflow.base.names import one_line
from nsysflow.base.units import percent

_Text = Annotated[str, msgspec.Meta(max_length=300)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 50)]
_Products = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class _Module(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Modules that a program was seen to do something with.

    Attributes:
        classes: theirs, those with most weights first.
        within: the class of the module that they are in, which is in no other call.
        phase: the name of the range around calls of that.
        places: `model.py:12-30`, the lines of `forward` of their classes; none for one of torch's.
        weights: how many they have.
        of: how many weights all modules with ranges of that name have.
        steps: how many steps were looked at.
        calls: calls in these.
    """

    classes: _Text
    within: _Text
    phase: _Text
    places: tuple[_Text, ...]
    weights: _Count
    of: _Count
    steps: _Count
    calls: _Count

    is_whole: ClassVar[bool] = True
    """Whether all kernels of a call are theirs."""

    @property
    def share(self) -> float:
        """Their estimated share of the time in such ranges, by weights."""
        return self.weights / self.of if self.of else 0.0

    @property
    def name(self) -> str:
        """`FeatureNet in PerceptualLoss`."""
        whole = self.classes == self.within
        return one_line(self.classes if whole else f"{self.classes} in {self.within}")


class UnusedModule(_Module, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Modules with weights whose gradients no optimizer uses.

    Attributes:
        whole: the calls whose whole backward pass is for nothing.
        part: those where only the gradients of weights are.
        thrown: the backward passes whose gradients an optimizer clears before it steps; 0 where no
            optimizer has the weights.
        lines: `train.py:12`, those that make the calls whose gradients are for nothing.
    """

    whole: _Count
    part: _Count
    thrown: _Count
    lines: tuple[_Text, ...]

    @property
    def text(self) -> str:
        """What was seen, in words."""
        why = (
            "an optimizer clears gradients unread that the backward pass for another one computes"
            if self.thrown
            else "no optimizer uses the gradients that backward computes"
        )
        return f"{why}, of {self.name}: {self.weights:,} weights"


class RepeatedModule(_Module, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Modules of a class that are called again with the very same input.

    Attributes:
        repeated: the calls that repeat another one of their step.
        learning: those of them with gradients.
        lines: `train.py:12`, those that make such calls.
        ways: the lines at which the ways to a call and to its repetition part.
    """

    repeated: _Count
    learning: _Count
    lines: tuple[_Text, ...]
    ways: tuple[_Text, ...]

    @property
    def text(self) -> str:
        """What was seen, in words."""
        return f"{self.name} is called again with the very same input within a step"


class PaddedModule(_Module, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Models of one class whose input has padding.

    Attributes:
        positions: positions in the rows of all calls.
        padding: positions that are padding.
        behind: padding behind the longest row of its batch.
        in_order: padding that would be left if each batch had rows of similar length.
        pairs: pairs of positions within a row.
        of_tokens: pairs of tokens within a row.
        lines: the lines that make such calls, as `train.py:12`.
    """

    positions: _Count
    padding: _Count
    behind: _Count
    in_order: _Count
    pairs: _Count
    of_tokens: _Count
    lines: tuple[_Text, ...]

    @property
    def text(self) -> str:
        """What was seen, in words."""
        share = percent(100 * self.padding / max(1, self.positions))
        return f"{share} of {self.name}'s input is padding"


class UnchangedModule(_Module, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Modules of one class that compute the same result in every step.

    Attributes:
        products: multiplications of linear layers and convolutions in such calls.
        of_products: the same in all calls with ranges of that name.
        lines: the lines that make such calls, as `train.py:12`.
    """

    products: _Products
    of_products: _Products
    lines: tuple[_Text, ...]

    @property
    def share(self) -> float:
        """As above, by multiplications: the number of rows differs between layers."""
        return self.products / self.of_products if self.of_products else 0.0

    @property
    def text(self) -> str:
        """What was seen, in words."""
        return f"{self.name} computes the same result in every step"


class MaskedModule(_Module, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Modules whose rows are multiplied by zero, in part.

    Attributes:
        operations: arithmetic operations of products in their calls.
        of_zeros: those for rows that become zero.
        lines: the lines that make such calls, as `train.py:12`.
    """

    operations: _Products
    of_zeros: _Products
    lines: tuple[_Text, ...]

    is_whole: ClassVar[bool] = False

    @property
    def masked_share(self) -> float:
        """The share of their rows that become zero."""
        return min(1.0, self.of_zeros / max(1, self.operations))

    @property
    def text(self) -> str:
        """What was seen, in words."""
        share = percent(100 * self.masked_share)
        return f"{share} of the results of {self.name} are multiplied by 0"


class _ProductGroup(_Module, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Products of matrices in calls of outermost modules. `calls` is how many they are.

    Attributes:
        learning: those with gradients.
        operations: arithmetic operations of what is counted of them.
        of_lines: the same of all products that the same lines compute.
        of_operations: the same of all products in calls with ranges of that name.
        lines: the lines that compute what is counted, as `train.py:12`.
    """

    learning: _Count
    operations: _Products
    of_lines: _Products
    of_operations: _Products
    lines: tuple[_Text, ...]

    is_whole: ClassVar[bool] = False

    @property
    def share(self) -> float:
        """As above, by operations."""
        return self.operations / self.of_operations if self.of_operations else 0.0

    @property
    def learning_share(self) -> float:
        """The share of the products that have gradients."""
        return min(1.0, self.learning / max(1, self.calls))


class OrderedProducts(_ProductGroup, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Products of three matrices in the costly order.

    Attributes:
        otherwise: arithmetic operations in the other order.
        batch: the number of matrices in the largest one.
        sizes: its sizes: the rows of each matrix, and the columns of the last one.
        left_first: whether it multiplies the first two matrices first.
    """

    otherwise: _Products
    batch: _Count
    sizes: tuple[_Count, _Count, _Count, _Count]
    left_first: bool

    @property
    def text(self) -> str:
        """What was seen, in words."""
        return f"{self.name} multiplies three matrices in the costly order"


class SparseProducts(_ProductGroup, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Products with a factor that is mostly zeros.

    Attributes:
        of_zeros: arithmetic operations that multiply zeros.
        sizes: the rows and columns of that factor in the largest product.
    """

    of_zeros: _Products
    sizes: tuple[_Count, _Count]

    @property
    def text(self) -> str:
        """What was seen, in words."""
        share = percent(100 * self.of_zeros / max(1, self.operations))
        return f"{share} of a factor in products of {self.name} is zeros"


class MergedAdapter(_ProductGroup, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Products with a weight into which a low-rank adapter is merged at each call. Operations and
    lines are those of the adapters.

    Attributes:
        used: arithmetic operations of the products with such weights.
        branch: those of the adapters, if they were branches instead.
        sizes: the rows, the inner size and the columns of the largest adapter.
    """

    used: _Products
    branch: _Products
    sizes: tuple[_Count, _Count, _Count]

    @property
    def text(self) -> str:
        """What was seen, in words."""
        return f"{self.name} merges low-rank adapters into their weights at each call"


class WorkerCode(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the workers of a DataLoader run most often.

    Attributes:
        function: the function of the program in which they are most often.
        line: `data.py:42`, the line of it that runs most often.
        loader: the number of the loader in its process.
        samples: how often they were seen in it.
        of: how often they were seen while they made a batch.
        streams: 1 if each of them iterates over the dataset, an IterableDataset, by itself.
    """

    function: _Text
    line: _Text
    loader: _Count
    samples: _Count
    of: _Count
    streams: _Count = 0

    @property
    def name(self) -> str:
        """`open_day (data.py:42)`."""
        return one_line(f"{self.function} ({self.line})")

    @property
    def share_pct(self) -> float:
        """The share of the samples."""
        return 100 * self.samples / self.of if self.of else 0.0

    @property
    def text(self) -> str:
        """What was seen, in words."""
        return f"the DataLoader's workers run {self.name} {percent(self.share_pct)} of the time"


SeenModule = (
    UnusedModule
    | RepeatedModule
    | PaddedModule
    | UnchangedModule
    | OrderedProducts
    | SparseProducts
    | MergedAdapter
    | MaskedModule
)
"""What a program was seen to do with a module."""

Observation = SeenModule | WorkerCode
"""What a program was seen to do."""

Seen = TypeVar("Seen", bound=Observation)
Module = TypeVar("Module", bound=SeenModule)
