"""Arrays as the formulas take them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SUM_TOLERANCE = 1e-9  # what shares may be off from one in all
