"""What do the judged kernels do, by their names and their order?"""
