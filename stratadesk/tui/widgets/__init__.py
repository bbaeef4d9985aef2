"""Widgets of the app, one per file; each draws what it is handed and decides nothing."""
