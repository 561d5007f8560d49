"""`python -m nsysflow` is `nsysflow`."""

from nsysflow.cli.main import main

main(prog_name="nsysflow")
