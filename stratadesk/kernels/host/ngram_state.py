"""The host's state of an n-gram embedding: the last tokens, and rows before its convolution."""

from dataclasses import dataclass

from stratadesk.kernels.host.history import HostHistory


@dataclass(frozen=True, slots=True)
class HostNgramState:
    """`tokens` [n - 1, 1] int32 and `rows` [(C - 1) · n, c · E] float32, each kept twice."""

    tokens: HostHistory
    rows: HostHistory

    @property
    def n_bytes(self) -> int:
        """Bytes of both sides."""
        return self.tokens.n_bytes + self.rows.n_bytes

    def commit(self) -> None:
        """Make what the last chunk wrote the state that the next one reads."""
        self.tokens.commit()
        self.rows.commit()
