"""What this version does with a model on a real card: all of it lies there, and nothing is lent."""

from dataclasses import dataclass

from stratadesk.engine.vram.wording import figure_mib


@dataclass(frozen=True, slots=True)
class ResidentModel:
    """A model as `--device cuda` loads it. Sizes in bytes, `context` and `window` in tokens.

    `needed` is what it takes of the card, `free` what is free for it, of which `reserve` must
    stay so. A prompt is read in windows. Of one that is not computed there `why_not` has the
    sentence, and sizes are 0. `refused` are flags of this plan that loading would refuse.
    """

    reserve: int
    free: int
    context: int = 0
    window: int = 0
    needed: int = 0
    why_not: str = ""
    refused: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether a card computes it and has room for it; flags that are refused are told apart."""
        return not self.why_not and self.needed + self.reserve <= self.free

    @property
    def text(self) -> str:
        """What this version does with it on that card, in one to three sentences."""
        begun = "This version, with --device cuda,"
        if self.why_not:
            return f"{begun} does not load it: {self.why_not}"
        told = (
            f"{begun} puts all of the model on the card, {figure_mib(self.needed)} for a context "
            f"of {self.context:,} tokens, and reads prompts {self.window} tokens at a time. With "
            f"the reserve of {figure_mib(self.reserve)} that "
            f"{'fits' if self.fits else 'does not fit'} into the {figure_mib(self.free)} free."
        )
        if not self.fits:
            told += " Choose a smaller model or --max-context, or compute on the CPU."
        return f"{told} It refuses {', '.join(self.refused)}." if self.refused else told

    def as_json(self) -> dict[str, object]:
        """The same in built-in types; null stands for what is not known of it."""
        runs = not self.why_not
        return {
            "fits": self.fits,
            "why_not": self.why_not or None,
            "needed_bytes": self.needed if runs else None,
            "context": self.context if runs else None,
            "window": self.window if runs else None,
            "refused_flags": list(self.refused),
        }
