"""What computes: one package per backend, knowing nothing of the engine."""
