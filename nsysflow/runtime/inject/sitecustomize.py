"""Runs when a Python of a profiled program starts; then the user's own sitecustomize runs, if any.

Written so that any Python can read it, however old. The folder stays in os.environ: launchers such
as torchrun copy that for the processes they start.
"""

import os
import sys

_folder = os.path.dirname(__file__)

if sys.version_info >= (3, 9):  # noqa: UP036  # of the program's Python
    from nsysflow_annotate import annotate
    from nsysflow_hook import install

    install(os.environ, annotate)
    del sys.modules["nsysflow_annotate"], sys.modules["nsysflow_hook"]

# From here on all is as without us. Where the user has no sitecustomize, the import below fails as
# it would have, and `site` goes on.
sys.path[:] = [entry for entry in sys.path if entry != _folder]
sys.path_importer_cache.pop(_folder, None)
del sys.modules["sitecustomize"]
import sitecustomize  # noqa: E402, F401
