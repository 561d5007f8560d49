"""What a profiled program imports: nothing else of nsysflow, and only what Python 3.9 has.

The program's Python need not be the one that runs `nsysflow profile`.
"""
