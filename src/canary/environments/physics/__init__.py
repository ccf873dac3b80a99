"""MuJoCo physics behind one signature, with two engines: `native` (C, on a CPU) and `mjx` (JAX, on
accelerators)."""
