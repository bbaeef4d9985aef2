"""Guards against an answer that goes wrong where the model draws its tokens itself."""

from typing import Any

import numpy as np

from stratadesk.engine.commands import Generate, SamplingSettings
from stratadesk.engine.decode import Decode
from stratadesk.engine.events import Channel, FinishReason

END = 9


class Tokenizer:
    end_ids = frozenset({END})

    def is_control(self, token: int) -> bool:
        return token == END

    def token_bytes(self, token: int) -> bytes:
        return bytes([ord("a") + token])


class Writer:
    """Gives `tokens`; None stands for one that the host must draw from `logits`."""

    def __init__(self, tokens: list[int | None]) -> None:
        self._tokens = iter(tokens)
        self.held = 0
        self.logits = np.eye(10, dtype=np.float32)[4]

    def next(self) -> int | None:
        return next(self._tokens)

    def hold(self) -> None:
        self.held += 1


class Session:
    """Keeps books; what is read otherwise than through the writer is noted."""

    room = 50

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.logits: Any = np.zeros(10, np.float32)
        self.ids: list[int] = [1, 2]
        self.read_ids: list[int] = []

    def writer(self, sampler: Any, end_ids: Any) -> Writer:
        assert end_ids == {END}
        return self._writer

    def hold(self, token: int, writer: Writer) -> None:
        writer.hold()
        self.ids.append(token)

    def read(self, tokens: list[int], *, logits: bool) -> None:
        self.read_ids += tokens
        self.ids += tokens
        self.logits = np.eye(10, dtype=np.float32)[END]


def answer(writer: Writer, session: Session) -> Decode:
    command = Generate(1, raw_prompt="x", sampling=SamplingSettings(temperature=0.0))
    tokenizer: Any = Tokenizer()
    held: Any = session
    decode = Decode(command, held, tokenizer, starts_thinking=False)
    while decode.finish_reason is None:
        decode.step()
    decode.close()
    return decode


def test_tokens_come_from_the_writer_and_are_held_but_for_the_last() -> None:
    writer = Writer([3, 0, END])
    session = Session(writer)
    decode = answer(writer, session)
    assert decode.tokens == [3, 0, END]
    assert decode.finish_reason is FinishReason.STOP
    assert decode.text(Channel.ANSWER) == "da"
    assert (writer.held, session.ids, session.read_ids) == (2, [1, 2, 3, 0], [])


def test_the_host_goes_on_where_the_writer_cannot_choose() -> None:
    writer = Writer([3, None])
    session = Session(writer)
    decode = answer(writer, session)
    assert decode.tokens == [3, 4, END]
    assert (writer.held, session.ids, session.read_ids) == (1, [1, 2, 3, 4], [4])
