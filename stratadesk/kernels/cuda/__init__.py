"""The CUDA backend: kernels compiled at run time, launched through CuPy, without its arrays."""
