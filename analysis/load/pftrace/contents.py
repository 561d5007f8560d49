"""What a trace of Perfetto holds, as frames: its events with their arguments, and what a GPU ran.

Only what a loader may use is kept: arguments with other names are left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import polars as pl

from nsysflow.analysis.frames.columns import repeated, scatter_table
from nsysflow.analysis.load.pftrace.names import (
    ARGUMENT_NAMES,
    CATEGORIES,
    EVENT_NAMES,
    GPU_CONTEXTS,
    GPU_STAGES,
    KERNELS,
    LAUNCH_ARGUMENTS,
    READ,
    TEXTS,
    Names,
)
from nsysflow.analysis.load.pftrace.values import ARGUMENT_NAME, JsonValues, Texts
from nsysflow.analysis.load.pftrace.wire import (
    BYTES,
    FIXED64,
    VARINT,
    Block,
    PacketFile,
)

BEGIN: Final = 1
END: Final = 2
"""Types of events."""

_EVENT: Final = 11
_STAGE: Final = 53
_COMPRESSED: Final = (50, 133)
_CLEARED: Final = 1
"""The bit of a packet's flags with which a generation of names begins."""

EVENTS: Final = pl.Schema(
    {
        "row": pl.UInt32(),
        "time_ns": pl.Int64(),
        "type": pl.UInt64(),
        "track": pl.UInt64(),
        "name": pl.Categorical(),
        "category": pl.Categorical(),
    }
)
"""One row per event; `row` numbers the packets of the file."""

_OF_ROW: Final = {"row": pl.UInt32(), "name": pl.Categorical()}
NUMBERS: Final = pl.Schema({**_OF_ROW, "value": pl.Int64()})
WORDS: Final = pl.Schema({**_OF_ROW, "value": pl.Categorical()})
VALUES: Final = pl.Schema({**_OF_ROW, "value": pl.String()})
"""One row per argument of an event, or of a stage, that is a whole number; a text; anything else,
as JSON."""

STAGES: Final = pl.Schema(
    {
        "row": pl.UInt32(),
        "time_ns": pl.Int64(),
        "stage": pl.UInt64(),
        "duration": pl.UInt64(),
        "gpu": pl.UInt64(),
        **dict.fromkeys(("queue", "kind", "context", "name", "kernel"), pl.Categorical()),
        **{f"{of}_{axis}": pl.UInt64() for of in ("grid", "block") for axis in "xyz"},
    }
)
"""One row per GpuRenderStageEvent: something that a GPU ran. `queue` and `kind` are the names of
its queue and stage, `context` is the pid of its process."""

_FRAMES: Final = {
    "events": EVENTS,
    "numbers": NUMBERS,
    "words": WORDS,
    "values": VALUES,
    "stages": STAGES,
}


@dataclass(frozen=True, kw_only=True)
class Contents:
    """A trace as frames.

    Attributes:
        names: its tracks, and what describes it.
        events: `EVENTS`.
        numbers: `NUMBERS`.
        words: `WORDS`.
        values: `VALUES`.
        stages: `STAGES`.
        packets: how many packets it has.
        compressed: how many packets hold others, compressed; those are not read.
        left_bytes: how many of its last bytes are no whole packet.
    """

    names: Names
    events: pl.DataFrame
    numbers: pl.DataFrame
    words: pl.DataFrame
    values: pl.DataFrame
    stages: pl.DataFrame
    packets: int
    compressed: int
    left_bytes: int

    def arguments_of(
        self, rows: pl.Series, numbers: Iterable[str], words: Iterable[str] = ()
    ) -> pl.DataFrame:
        """The arguments of the events, or stages, with these `row`s: a column for each number, and
        one called `<name>_word` for each word. Of a name that comes again, the last."""
        place = scatter_table(self.packets, rows, _counted(len(rows)))
        columns = []
        for frame, names, suffix in ((self.numbers, numbers, ""), (self.words, words, "_word")):
            by_name = {str(name): of for (name,), of in frame.group_by("name", maintain_order=True)}
            for name in names:
                of_name = by_name.get(name, frame.clear())
                at = place[of_name["row"]]
                known = at.is_not_null()
                values = scatter_table(len(rows), at.filter(known), of_name["value"].filter(known))
                columns.append(values.alias(f"{name}{suffix}"))
        return pl.DataFrame(columns)


def read_contents(file: BinaryIO, arguments: frozenset[str]) -> Contents:
    """What a trace holds, with the arguments of these names."""
    reader = _Reader(arguments=arguments)
    packets = PacketFile(file)
    for block in packets.blocks():
        reader.read(block)
    return Contents(
        names=reader.names,
        packets=reader.packets,
        compressed=reader.compressed,
        left_bytes=packets.left_bytes,
        **{name: pl.concat(parts) for name, parts in reader.parts.items()},
    )


@dataclass
class _Reader:
    """Reads one block after the other."""

    arguments: frozenset[str]
    names: Names = field(default_factory=Names)
    packets: int = 0
    compressed: int = 0
    parts: dict[str, list[pl.DataFrame]] = field(
        default_factory=lambda: {name: [of.to_frame()] for name, of in _FRAMES.items()}
    )
    _generations: dict[tuple[int, int], int] = field(default_factory=dict)
    _clears: dict[int, int] = field(default_factory=dict)
    _last_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    _texts: Texts = field(default_factory=Texts)
    _json: JsonValues = field(default_factory=JsonValues)

    def read(self, block: Block) -> None:
        """Take in the packets of a block."""
        rows = block.packets.with_row_index("row")
        fields = block.fields(rows)
        count, first = len(rows), self.packets
        sequence = _numbers_of(fields, 10, count).fill_null(0)
        flags = _numbers_of(fields, 13, count).fill_null(0)
        cleared = (flags % 2 == _CLEARED) | (_numbers_of(fields, 41, count).fill_null(0) > 0)
        generation = self._generation(sequence, cleared)
        self._add_names(block, fields, generation)
        times = self._times(fields, generation, count)
        packets = pl.DataFrame([generation.alias("generation"), times.alias("time_ns")])
        packets = packets.with_row_index("row", offset=first)
        self._add_events(block, _messages(fields, _EVENT), packets)
        self._add_stages(block, _messages(fields, _STAGE), packets)
        self.compressed += len(fields.filter(pl.col("number").is_in(_COMPRESSED)))
        self.packets += count

    def _generation(self, sequence: pl.Series, cleared: pl.Series) -> pl.Series:
        """The generation of names of each packet."""
        key = ["sequence", "clears"]
        before = _looked_up(sequence, self._clears, pl.UInt32).fill_null(0)
        rows = pl.DataFrame([sequence.alias("sequence"), cleared.alias("cleared")])
        clears = pl.col("cleared").cast(pl.UInt32).cum_sum().over("sequence") + before
        rows = rows.select("sequence", clears.alias("clears"))
        pairs = rows.unique(maintain_order=True)
        numbers = [
            self._generations.setdefault(pair, len(self._generations)) for pair in pairs.rows()
        ]
        self._clears.update(pairs.rows())
        known = pairs.with_columns(pl.Series("generation", numbers, dtype=pl.UInt32))
        return rows.join(known, on=key, how="left", maintain_order="left")["generation"]

    def _add_names(self, block: Block, fields: pl.DataFrame, generation: pl.Series) -> None:
        """Take in the packets that say what numbers stand for, in their order."""
        telling = fields.filter(pl.col("number").is_in(READ) & (pl.col("wire") == BYTES))
        telling = telling.sort("row", maintain_order=True)
        of = generation[telling["row"]].to_list()
        places = telling.select("number", "start", "end").rows()
        for (number, start, end), generation_of in zip(places, of, strict=True):
            self.names.add(block.data, number, start, end, generation_of)

    def _times(self, fields: pl.DataFrame, generation: pl.Series, count: int) -> pl.Series:
        """When each packet is from, ns."""
        time = signed(_numbers_of(fields, 8, count).fill_null(0))
        if not self.names.clocks:
            return time
        default = _looked_up(generation, self.names.default_clocks, pl.UInt64)
        clock = _numbers_of(fields, 58, count).fill_null(default)
        key = ["generation", "clock"]
        rows = pl.DataFrame(
            [generation.alias("generation"), clock.alias("clock"), time.alias("time_ns")]
        )
        pairs = [pair for pair in rows.select(key).unique().rows() if pair in self.names.clocks]
        told = []
        for pair in pairs:
            of = self.names.clocks[pair]
            told.append(
                (*pair, of.incremental, of.unit_ns, self._last_ns.get(pair, of.start * of.unit_ns))
            )
        clocks = pl.DataFrame(told, {**dict(rows.select(key).schema), **_CLOCK}, orient="row")
        joined = rows.join(clocks, on=key, how="left", maintain_order="left")
        moved = pl.col("time_ns") * pl.col("unit_ns").fill_null(1)
        counted = pl.col("last_ns") + moved.cum_sum().over(key)
        joined = joined.with_columns(
            pl.when("incremental").then(counted).otherwise(moved).alias("time_ns")
        )
        last = joined.filter("incremental").group_by(key).agg(pl.col("time_ns").last())
        self._last_ns.update({(pair[0], pair[1]): pair[2] for pair in last.rows()})
        return joined["time_ns"]

    def _add(self, name: str, rows: pl.DataFrame) -> None:
        if len(rows):
            self.parts[name].append(rows.match_to_schema(_FRAMES[name]))

    def _add_events(self, block: Block, messages: pl.DataFrame, packets: pl.DataFrame) -> None:
        count = len(messages)
        if not count:
            return
        of, fields = _of_packets(block, messages, packets)
        generation = of["generation"]
        track = _numbers_of(fields, 11, count)
        if track.null_count():
            track = track.fill_null(_looked_up(generation, self.names.default_tracks, pl.UInt64))
        name = self._named(block, fields, generation, EVENT_NAMES, iid=10, text=23)
        category = self._named(block, fields, generation, CATEGORIES, iid=3, text=22)
        self._add(
            "events",
            pl.DataFrame(
                [
                    of["row"],
                    of["time_ns"],
                    _numbers_of(fields, 9, count).fill_null(0).alias("type"),
                    track.fill_null(0).alias("track"),
                    name.alias("name"),
                    category.alias("category"),
                ]
            ),
        )
        self._add_arguments(block, _messages(fields, 4), of)

    def _named(
        self,
        block: Block,
        fields: pl.DataFrame,
        generation: pl.Series,
        kind: int,
        *,
        iid: int,
        text: int,
    ) -> pl.Series:
        """The name that each message has as a number or as a text; null for none."""
        names = self.names.texts(kind, generation, _numbers_of(fields, iid, len(generation)))
        written = _messages(fields, text)
        if len(written):
            texts = self._texts.of(block.contents(written))
            names = names.scatter(written["row"], texts)
        return names

    def _add_arguments(self, block: Block, messages: pl.DataFrame, of: pl.DataFrame) -> None:
        """The arguments of events: their messages by row of `of`, `row` and `generation`."""
        if messages.is_empty():
            return
        owner, generation = (of[name][messages["row"]] for name in ("row", "generation"))
        naming = self._naming(block, messages.with_columns(_counted(len(messages))))
        at = naming["row"]
        name = self._named(
            block,
            naming.with_columns(_counted(len(naming))),
            generation[at],
            ARGUMENT_NAMES,
            iid=1,
            text=ARGUMENT_NAME,
        )
        wanted = self._wanted(name)
        at, name = at.filter(wanted), name.filter(wanted)
        rows = messages[at].with_columns(_counted(len(at)))
        values = pl.DataFrame([owner[at], generation[at], name.alias("name")])
        self._add_values(block, rows, values)

    def _naming(self, block: Block, messages: pl.DataFrame) -> pl.DataFrame:
        """The field of each argument that names it. Writers mostly put it first, and of most
        arguments nothing else is read."""
        first = block.fields(messages, most=1)
        names = pl.col("number").is_in([1, ARGUMENT_NAME])
        later = messages[first.filter(~names)["row"]]
        return pl.concat([first, block.fields(later)]).filter(names).unique("row", keep="last")

    def _wanted(self, names: pl.Series) -> pl.Series:
        """Whether each is the name of an argument that is read."""
        known = names.unique().drop_nulls()
        known = known.filter(known.cast(pl.String).is_in([*self.arguments]))
        return names.is_in(known.implode()).fill_null(value=False)

    def _add_values(self, block: Block, messages: pl.DataFrame, of: pl.DataFrame) -> None:
        """The values of arguments: their messages, and `row`, `generation`, `name` of each."""
        fields = block.fields(messages)
        key = of.select("row", "name")
        numbers = fields.filter(_is((3, 4, 7), VARINT))
        self._add(
            "numbers", key[numbers["row"]].with_columns(signed(numbers["value"]).alias("value"))
        )
        words = fields.filter(_is(6, BYTES))
        texts = self._texts.of(block.contents(words))
        self._add("words", key[words["row"]].with_columns(texts.alias("value")))
        interned = fields.filter(_is(17, VARINT))
        generation = of["generation"][interned["row"]]
        texts = self.names.texts(TEXTS, generation, interned["value"].alias("iid"))
        self._add("words", key[interned["row"]].with_columns(texts.alias("value")))
        others = fields.filter(_is((11, 12), BYTES) | _is(2, VARINT) | _is(5, FIXED64))
        others = others.unique("row", keep="first", maintain_order=True)
        values = self._json.of(block.contents(messages[others["row"]]))
        self._add("values", key[others["row"]].with_columns(values.alias("value")))

    def _add_stages(self, block: Block, messages: pl.DataFrame, packets: pl.DataFrame) -> None:
        count = len(messages)
        if not count:
            return
        of, fields = _of_packets(block, messages, packets)
        generation = of["generation"]

        def number(field_number: int) -> pl.Series:
            return _numbers_of(fields, field_number, count)

        def named(kind: int, field_number: int) -> pl.Series:
            return self.names.texts(kind, generation, number(field_number))

        columns = {
            "row": of["row"],
            "time_ns": of["time_ns"],
            "stage": number(1),
            "duration": number(2).fill_null(0),
            "gpu": number(11).fill_null(0),
            "queue": named(GPU_STAGES, 13),
            "kind": named(GPU_STAGES, 14),
            "context": named(GPU_CONTEXTS, 5),
            "name": self._named(block, fields, generation, EVENT_NAMES, iid=20, text=17),
            "kernel": named(KERNELS, 19),
            **self._launches(block, _messages(fields, 21), of),
        }
        self._add("stages", pl.DataFrame(columns))
        self._add_extras(block, _messages(fields, 6), of["row"])

    def _launches(
        self, block: Block, messages: pl.DataFrame, of: pl.DataFrame
    ) -> Mapping[str, pl.Series]:
        """How kernels were launched, of `STAGES`; their other arguments become numbers."""
        fields = block.fields(messages)
        sizes = {}
        for number, side in ((1, "grid"), (2, "block")):
            axes = block.fields(_messages(fields, number))
            for axis, letter in enumerate("xyz", 1):
                sizes[f"{side}_{letter}"] = _numbers_of(axes, axis, len(of))
        arguments = _messages(fields, 3)
        owner, generation = (of[name][arguments["row"]] for name in ("row", "generation"))
        values = block.fields(arguments.with_columns(_counted(len(arguments))))
        name = self._named(block, values, generation, LAUNCH_ARGUMENTS, iid=1, text=2)
        numbers = values.filter(_is((3, 4), VARINT))
        at = numbers["row"]
        rows = pl.DataFrame(
            [owner[at], name[at].alias("name"), signed(numbers["value"]).alias("value")]
        )
        self._add("numbers", rows.filter(self._wanted(rows["name"])))
        return sizes

    def _add_extras(self, block: Block, messages: pl.DataFrame, rows: pl.Series) -> None:
        """What stages have as pairs of a name and a text."""
        count = len(messages)
        if not count:
            return
        fields = block.fields(messages.with_columns(_counted(count)))
        names, texts = _messages(fields, 1), _messages(fields, 2)
        none = repeated(None, count, pl.Categorical)
        name = none.scatter(names["row"], self._texts.of(block.contents(names)))
        texts = texts.filter(self._wanted(name)[texts["row"]])
        value = self._texts.of(block.contents(texts))
        owner = rows[messages["row"]][texts["row"]]
        self._add(
            "words",
            pl.DataFrame(
                [owner.alias("row"), name[texts["row"]].alias("name"), value.alias("value")]
            ),
        )


_CLOCK: Final = {"incremental": pl.Boolean(), "unit_ns": pl.Int64(), "last_ns": pl.Int64()}


def _is(numbers: int | tuple[int, ...], wire: int) -> pl.Expr:
    """Whether a field has one of these numbers and this wire type."""
    of = (numbers,) if isinstance(numbers, int) else numbers
    return pl.col("number").is_in(of) & (pl.col("wire") == wire)


def _numbers_of(fields: pl.DataFrame, number: int, count: int) -> pl.Series:
    """What `count` messages have as a number in a field, u64; null for none."""
    mine = fields.filter((pl.col("number") == number) & (pl.col("wire") != BYTES))
    return scatter_table(count, mine["row"], mine["value"])


def _messages(fields: pl.DataFrame, number: int) -> pl.DataFrame:
    """`row`, `start`, `end` of the bytes in fields of a number."""
    return fields.filter(_is(number, BYTES)).select("row", "start", "end")


def _of_packets(
    block: Block, messages: pl.DataFrame, packets: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The packet of each message, and the fields of the messages."""
    return packets[messages["row"]], block.fields(messages.with_columns(_counted(len(messages))))


def _counted(count: int) -> pl.Series:
    return pl.int_range(count, dtype=pl.UInt32, eager=True).alias("row")


def signed(numbers: pl.Series) -> pl.Series:
    """Numbers as int64, whose two's complement they are."""
    wrapped = pl.col(numbers.name).cast(pl.Int64, wrap_numerical=True)
    return numbers.to_frame().select(wrapped).to_series()


def _looked_up(keys: pl.Series, table: Mapping[int, int], dtype: Any) -> pl.Series:
    """What the table has for each key; null where it has nothing."""
    if not table:
        return repeated(None, len(keys), dtype)
    return keys.replace_strict(
        pl.Series([*table], dtype=keys.dtype),
        pl.Series([*table.values()], dtype=dtype),
        default=None,
        return_dtype=dtype,
    )
