"""The rules about what kernels do: they name more than "make the kernels faster"."""
