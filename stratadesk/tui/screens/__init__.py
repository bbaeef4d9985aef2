"""Screens of the app: the chat with its monitor, the choice of a model, the list of keys."""
