"""What arena, cache and phases raise when a rule that keeps stale bytes out is broken."""


class InvariantError(RuntimeError):
    """A bug in StrataDesk: names the rule and the numbers. No compute may follow it."""
