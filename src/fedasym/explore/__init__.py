"""The interactive page: one HTML file with the theory inside, served on this machine or kept beside the documentation."""

from fedasym.explore.page import page, write
from fedasym.explore.server import Explorer

__all__ = ["Explorer", "page", "write"]
