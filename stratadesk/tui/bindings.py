"""Textual bindings made from the table of keys, so that no key is written down twice."""

from textual.binding import Binding

from stratadesk.keys import find_key


def bind(key_id: str, action: str, *, priority: bool = False) -> Binding:
    """Return the binding of the key `key_id` to `action`.

    `priority` lets it win against the widget that has the focus.

    Raises:
        KeyError: The table has no such id.
    """
    key = find_key(key_id)
    return Binding(
        key.key,
        action,
        key.label,
        show=False,
        priority=priority,
        tooltip=key.tooltip,
        id=key.id,
    )
