"""Names of CUDA API calls."""

import re
from typing import Final

VERSION: Final = re.compile(r"(_v\d+|_ptsz|_ptds)+$")
"""The version at the end of an API name: `cudaLaunchKernel_v7000_ptsz`, `cuMemAlloc_v2`."""
