"""Two calm themes, dark and light, slate with sandstone as the accent, and one of high contrast."""

from textual.theme import Theme

DARK = Theme(
    name="strata-dark",
    dark=True,
    primary="#8fb6cc",
    secondary="#7d93a6",
    accent="#d9ab72",
    success="#9dbb82",
    warning="#e0b661",
    error="#dd8070",
    foreground="#d5d9df",
    background="#14171c",
    surface="#1a1e25",
    panel="#222831",
    variables={
        "block-cursor-background": "#2b3541",
        "block-cursor-foreground": "#eef1f4",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#222831",
        "input-selection-background": "#8fb6cc 30%",
        "link-color": "#8fb6cc",
        "link-background-hover": "#222831",
        "link-color-hover": "#d9ab72",
        "scrollbar": "#2b323d",
        "scrollbar-hover": "#3a4452",
        "scrollbar-active": "#4a5768",
        "scrollbar-background": "#14171c",
        "scrollbar-background-hover": "#14171c",
        "scrollbar-background-active": "#14171c",
        "scrollbar-corner-color": "#14171c",
    },
)

LIGHT = Theme(
    name="strata-light",
    dark=False,
    primary="#2f6480",
    secondary="#5b7486",
    accent="#96590f",
    success="#47742a",
    warning="#8a5f08",
    error="#a53d2d",
    foreground="#2a2f36",
    background="#f8f6f1",
    surface="#f0ede5",
    panel="#e6e2d8",
    variables={
        "block-cursor-background": "#dbe4ea",
        "block-cursor-foreground": "#1c2126",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#e6e2d8",
        "input-selection-background": "#2f6480 25%",
        "link-color": "#2f6480",
        "link-background-hover": "#e6e2d8",
        "link-color-hover": "#96590f",
        "scrollbar": "#d6d1c5",
        "scrollbar-hover": "#c4beb0",
        "scrollbar-active": "#b0a998",
        "scrollbar-background": "#f8f6f1",
        "scrollbar-background-hover": "#f8f6f1",
        "scrollbar-background-active": "#f8f6f1",
        "scrollbar-corner-color": "#f8f6f1",
    },
)

CONTRAST = Theme(
    name="strata-contrast",
    dark=True,
    primary="#7fd7ff",
    secondary="#d0b0ff",
    accent="#ffd75f",
    success="#87ff87",
    warning="#ffaf00",
    error="#ff8787",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1c1c1c",
    variables={
        "block-cursor-background": "#ffffff",
        "block-cursor-foreground": "#000000",
        "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": "#3a3a3a",
        "input-selection-background": "#7fd7ff 50%",
        "link-color": "#7fd7ff",
        "link-background-hover": "#3a3a3a",
        "link-color-hover": "#ffd75f",
        "scrollbar": "#a0a0a0",
        "scrollbar-hover": "#ffffff",
        "scrollbar-active": "#ffffff",
        "scrollbar-background": "#000000",
        "scrollbar-background-hover": "#000000",
        "scrollbar-background-active": "#000000",
        "scrollbar-corner-color": "#000000",
    },
)

THEMES = (DARK, LIGHT, CONTRAST)


def following_theme(name: str) -> str:
    """Return the name of the theme after `name`; the first one after any that is not ours."""
    names = [theme.name for theme in THEMES]
    place = names.index(name) + 1 if name in names else 0
    return names[place % len(names)]
