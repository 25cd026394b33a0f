"""What cannot be read is told what can."""

import numpy as np

from .owned import WHO, X, Y, refused


def test_what_cannot_be_read_is_told_what_can(tmp_path):
    (tmp_path / "a.ods").write_bytes(b"PK")
    refused(
        tmp_path / "a.ods",
        "'.ods' is unknown",
        ".parquet, .arrow, .safetensors, .csv, .tsv, .txt, .xlsx, .npz, .json, .h5",
    )
    refused(tmp_path, "a.ods", "nothing in it can be read")
    refused(tmp_path / "none.csv", "no such file or folder")
    np.savez(tmp_path / "a.npz", x=X, y=Y, client=WHO)
    refused(tmp_path, "give the .npz file itself")
