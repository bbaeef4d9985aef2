"""A list that is as high as its rows or the screen, and says what the screen hides of it."""

from textual.containers import VerticalScroll
from textual.geometry import Size

from stratadesk.keys import find_key


class ToldScroll(VerticalScroll):
    """Says in its lower border how many rows are hidden, and which keys show them."""

    def on_resize(self) -> None:
        """Say what is hidden now, once the rows have their places."""
        self.call_after_refresh(self._tell_hidden)

    def watch_virtual_size(self, old: Size, new: Size) -> None:
        """Say what is hidden when rows come or go."""
        if old != new:
            self.call_after_refresh(self._tell_hidden)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scroll, and say what is hidden then."""
        super().watch_scroll_y(old_value, new_value)
        self._tell_hidden()

    def _tell_hidden(self) -> None:
        above = round(self.scroll_y)
        self.border_subtitle = hidden_words(above, self.max_scroll_y - above)


def hidden_words(above: int, below: int) -> str:
    """Say how many rows there are above and below those on screen, and which keys show them.

    >>> hidden_words(0, 8), hidden_words(3, 5), hidden_words(0, 0)
    ('8 more below · PgDn', '3 more above · PgUp · 5 more below · PgDn', '')
    """
    sides = ((above, "above", "page_up"), (below, "below", "page_down"))
    return " · ".join(
        f"{count} more {side} · {find_key(key_id).caption}"
        for count, side, key_id in sides
        if count > 0
    )
