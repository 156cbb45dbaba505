"""Commands, and the composition of each room's settings into one tree. Light: nothing here imports torch or numba."""
