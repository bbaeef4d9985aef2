"""A remark of the program between turns."""

from textual.widgets import Static

from stratadesk.tui.sanitise import safe_text


class Notice(Static):
    """One dimmed sentence, its mark saying that neither you nor the model said it."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(_marked(sentence), markup=False)

    def say(self, sentence: str) -> None:
        """Say something else in the same place."""
        self.sentence = sentence
        self.update(_marked(sentence))


def _marked(sentence: str) -> str:
    return f"◇ {safe_text(sentence)}"
