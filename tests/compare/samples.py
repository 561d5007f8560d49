"""Random samples of step durations, as runs: short and long, tied, constant and drifting."""

from hypothesis import strategies as st

durations_ns = st.one_of(
    st.lists(st.integers(1, 12), min_size=1, max_size=40),  # with many ties
    st.lists(st.integers(900_000, 1_100_000), min_size=8, max_size=40),
    st.integers(1, 10**9).map(lambda each: [each] * 12),
    st.integers(8, 40).map(lambda count: [1_000 + 7 * at for at in range(count)]),
    # neighbours that alternate tell most
    st.integers(1_000, 2_000).map(lambda each: [each, each + 30, each - 20, each + 50] * 6),
)
sides = st.one_of(
    durations_ns.map(lambda run: [run]), st.lists(durations_ns, min_size=2, max_size=5)
)
