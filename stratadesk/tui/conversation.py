"""The chat as the engine is told it: user turns and what the model answered, in order."""

from stratadesk.engine.commands import Message


class Conversation:
    """Messages of one chat. An exchange counts once the model has said something.

    A question that failed, or was stopped before the first token, is not sent again with the
    next one: otherwise one prompt that does not fit would spoil every later one.
    """

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._question: Message | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """All finished exchanges, and the open question last if there is one."""
        open_question = () if self._question is None else (self._question,)
        return (*self._messages, *open_question)

    @property
    def follow_up(self) -> bool:
        """Whether the open question has finished exchanges before it."""
        return bool(self._messages) and self._question is not None

    def ask(self, text: str, remembered: int | None = None) -> tuple[Message, ...]:
        """Open a question and return what to send: it, behind the last exchanges or behind all."""
        self._question = Message("user", text)
        return self.messages if remembered is None else self.messages[-2 * remembered - 1 :]

    def answered(self, text: str, reasoning: str) -> bool:
        """Close the open question; return whether the exchange was kept."""
        question, self._question = self._question, None
        if question is None or not (text or reasoning):
            return False
        self._messages += [question, Message("assistant", text, reasoning)]
        return True

    def restore(self, messages: tuple[Message, ...]) -> None:
        """Hold these finished exchanges in place of all before."""
        self._messages, self._question = list(messages), None

    def clear(self) -> None:
        """Forget everything."""
        self._messages.clear()
        self._question = None
