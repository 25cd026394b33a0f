"""The interactive page: one HTML file with the theory inside, served on this machine or kept beside the documentation."""

from fedasym.show.explore.page import page, write
from fedasym.show.explore.server import Explorer

__all__ = ["Explorer", "page", "write"]
