"""The terminal app: everything that uses Textual. It hears of the engine through events only."""
