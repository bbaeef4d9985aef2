"""VRAM as phase-dependent storage: plan, arena, expert cache, phases, and readings of memory."""
