"""What holds the GPUs back: the verdict, its evidence, and the steps that are outliers."""
