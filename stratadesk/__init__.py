"""StrataDesk: chat with mixture-of-experts GGUF models and see where VRAM goes."""

__version__ = "0.1.0"
