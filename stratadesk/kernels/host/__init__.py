"""The host backend: NumPy arrays, Numba kernels, and the tensor formats they read."""
