"""Tables as files: separators, decimal commas, marks, missing words, labels, large numbers."""

from datetime import datetime
from zipfile import ZipFile

import numpy as np
import polars as pl
import pytest
import xlsxwriter

from fedasym.core.errors import InvalidInput, MissingPackage
from fedasym.data import frames
from fedasym.data.formats import read, read_pool
from fedasym.data.frames import find_separator, read_file
from fedasym.experiments.fields import Data, read_source

from ...command import fedasym

ROWS = [("a", "1.5", "x"), ("a", "2.5", "y"), ("b", "3.0", "x"), ("b", "-4.25", "y")]


def written(folder, text, name="t.csv"):
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_separators_line_ends_and_marks(tmp_path, separator, ends, mark):
    lines = [('" who "', " x", '"no, te"'), *ROWS]
    file = written(
        tmp_path,
        mark
        + ends.join(separator.join(row) if separator != "," else ",".join(row) for row in lines),
    )
    assert read_file(file).to_dict(as_series=False) == {
        "who": ["a", "a", "b", "b"],
        "x": [1.5, 2.5, 3.0, -4.25],
        "no, te": ["x", "y", "x", "y"],
    }


@pytest.mark.parametrize("name", ["t.tsv", "t.txt", "t.CSV"])
def test_endings(tmp_path, name):
    file = written(tmp_path, "client\tx\tlabel\na\t1.5\t0.5\nb\t2\t1.5\n", name)
    assert read(file, scale="none").features.ravel().tolist() == [1.5, 2.0]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_decimal_commas(tmp_path, separator):
    lines = ["client;x;n;label", "a;1,5;3;-0,5", "b;NA;4;1e3", "b;2,5;-;1,25e-1"]
    file = written(tmp_path, "\n".join(lines).replace(";", separator))
    assert read_file(file)["x"].to_list() == [1.5, None, 2.5]
    assert read_file(file)["n"].to_list() == [3, 4, None]
    assert read_file(file)["label"].to_list() == [-0.5, 1000.0, 0.125]


def test_separators_of_thousands_are_refused_in_words(tmp_path):
    for text in (
        'client,x,label\na,"1,234",0.5\nb,"12,345",1.5\n',
        "client;x;label\na;1.234.567;0,5\nb;1.000.000;1,5\n",
    ):
        with pytest.raises(
            InvalidInput, match=r"column 'x', row 0 \(line 2\) holds .*thousands separators"
        ):
            read(written(tmp_path, text))


def test_utf16_text_of_excel(tmp_path):
    text = "client\tGröße\tlabel\na\t1,5\t2\nb\t2,5\t3\n"
    assert read_file(written(tmp_path, text.encode("utf-16"), "t.txt")).columns == [
        "client",
        "Größe",
        "label",
    ]


SHOPS = "Laden;Größe;Umsatz\nMüller;1,5;2,5\nMüller;2,5;3\nŠimon;3;4,5\nŠimon;4;5,5\n"


def test_a_spreadsheets_own_encoding_is_named_in_the_error_and_then_read(tmp_path):
    file = written(tmp_path, SHOPS.encode("cp1252"))
    columns = {"label": "Umsatz", "client": "Laden", "scale": "none"}
    with pytest.raises(InvalidInput, match=r"line 1 is not UTF-8 text: .*--encoding cp1252\)"):
        read(file, **columns)
    found = read(file, **columns, encoding="cp1252")
    plain = read(written(tmp_path, SHOPS, "plain.csv"), **columns)
    assert found.clients == plain.clients == ("Müller", "Šimon")
    assert found.names == ("Größe",)
    assert np.array_equal(found.features, plain.features)
    assert np.array_equal(found.labels, plain.labels)


def test_every_way_to_read_a_table_takes_its_encoding(tmp_path):
    file = written(tmp_path, SHOPS.encode("utf-16-le"))
    assert read_file(file, encoding="utf-16-le").columns == ["Laden", "Größe", "Umsatz"]
    (tmp_path / "folder").mkdir()
    for part in ("a.csv", "b.csv"):
        written(tmp_path / "folder", SHOPS.encode("cp1252"), part)
    columns = {"label": "Umsatz", "client": "Laden"}
    assert len(read(tmp_path / "folder", **columns, encoding="cp1252").labels) == 8
    pool, _ = read_pool(file, "Umsatz", encoding="utf-16-le")
    assert len(pool.labels) == 4


def test_commands_and_experiment_files_take_the_encoding(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"Café {i % 6};{x:.3f};{x + i % 6:.3f}" for i, x in enumerate(rng.random(60))]
    text = "\n".join(["Laden;Größe;Umsatz", *rows])
    file = written(tmp_path, text.encode("cp1252"))
    columns = ["--label", "Umsatz", "--client", "Laden"]
    model = tmp_path / "model.safetensors"
    refused = fedasym("fit", file, *columns, "--save", model)
    assert "--encoding cp1252" in refused.stderr
    fitted = fedasym("fit", file, *columns, "--save", model, "--encoding", "cp1252")
    assert fitted.returncode == 0, fitted.stderr
    applied = fedasym("apply", model, file, "--encoding", "cp1252")
    assert applied.stdout.splitlines()[0] == "Laden,Größe,Umsatz,prediction,model"
    assert "own" in applied.stdout.splitlines()[1]
    source = Data(file=str(file), label="Umsatz", client="Laden", encoding="cp1252")
    assert len(read_source(source).clients) == 6


def test_an_encoding_that_does_not_fit_is_refused(tmp_path):
    file = written(tmp_path, "client,x,label\na,\x81,1\n".encode("latin-1"))
    with pytest.raises(InvalidInput, match="line 2 is not text in cp1252"):
        read(file, encoding="cp1252")
    for wrong in ("klingon", "hex", 3):
        with pytest.raises(InvalidInput, match="Python knows no text encoding"):
            read(file, encoding=wrong)
    with pytest.raises(InvalidInput, match="line 1 is not text in utf-16"):
        read(written(tmp_path, b"\xff\xfec\x00l", "cut.csv"))  # a mark, and half a letter
    saved = pl.DataFrame({"client": ["a"], "x": [1.0], "label": [2.0]})
    saved.write_parquet(tmp_path / "t.parquet")
    for reader in (read, read_file, read_pool):
        with pytest.raises(InvalidInput, match=r"encoding is given, which is for \.csv"):
            reader(tmp_path / "t.parquet", encoding="cp1252")


def test_what_cannot_be_read_is_told_where(tmp_path):
    with pytest.raises(
        InvalidInput, match="line 3 has 4 fields and the header 3, separated by commas: quote"
    ):
        read(written(tmp_path, "client,x,label\na,1,2\na,1,2,3\n"))
    many = "client,x,label\n" + "a,1,2\n" * 20000  # beyond what is looked at first
    for last, says in ((b"\xe9,1,2", "it is not UTF-8 text"), (b"a,1,2,3", "more fields")):
        with pytest.raises(InvalidInput, match=f"cannot be read as CSV: .*{says}"):
            read(written(tmp_path, many.encode() + last))
    with pytest.raises(InvalidInput, match=r"cannot be read as CSV: .*more fields"):
        read(written(tmp_path, f'client,x,label\n"{"a" * 200_000}",1,2,3\n'))
    with pytest.raises(InvalidInput, match=r"no.csv': there is no such file"):
        read_file(tmp_path / "no.csv")
    with pytest.raises(InvalidInput, match=r"t.ods': tables end in .csv"):
        read_file(written(tmp_path, "x", "t.ods"))
    with pytest.raises(InvalidInput, match="several columns 'x'"):
        read(written(tmp_path, "client,x, x,label\na,1,2,3\n"))
    with pytest.raises(InvalidInput, match="no samples: the table has a header and no rows"):
        read(written(tmp_path, "client,x,label\n"))


def test_quoted_separators_do_not_count():
    assert find_separator(b'a;"b,c,d,e";f\n1,5;"x,y,z,u";2\n') == ";"
    assert find_separator(b'"a","b"\n"1;2;3","4;5;6"\n') == ","
    assert find_separator(b"\n\n") == ","


def test_excel_needs_a_package_or_reads(tmp_path, monkeypatch):
    file = written(tmp_path, b"PK", "t.xlsx")
    monkeypatch.setattr(frames, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"pip install 'fedasym\[excel\]'"):
        read(file)
    monkeypatch.setattr(frames, "find_spec", lambda name: name == "fastexcel")
    with pytest.raises(InvalidInput, match=r"cannot be read as \.xlsx"):
        read(file)
    with ZipFile(file, "w") as archive:
        archive.writestr("notes.txt", "no workbook")
    with pytest.raises(InvalidInput, match=r"cannot be read as \.xlsx: .*not found"):
        read(file)


def write_workbook(file, odd=None):
    """A workbook as people keep them: numbers, dates, words, booleans, an empty cell or an odd one,
    and a second sheet.
    """
    rng = np.random.default_rng(0)
    with xlsxwriter.Workbook(file) as book:
        sheet = book.add_worksheet("sales")
        sheet.write_row(0, 0, ["shop", " price ", "day", "kind", "open", "sold"])
        for i in range(1, 61):
            words = ["big", "small"][rng.integers(2)], bool(rng.integers(2))
            sheet.write_row(
                i, 0, [i % 5, odd if i == 7 else rng.normal(10, 2), None, *words, rng.normal(5, 1)]
            )
            sheet.write_datetime(
                i,
                2,
                datetime(2024, 1 + i % 12, 1 + i % 28),
                book.add_format({"num_format": "yyyy-mm-dd"}),
            )
        book.add_worksheet("notes").write(0, 0, "nothing")
    return file


def test_a_workbook_is_read_as_the_same_table_in_csv(tmp_path):
    book = write_workbook(tmp_path / "t.xlsx")
    pl.read_excel(book).write_csv(tmp_path / "t.csv")
    options = {"label": "sold", "client": "shop", "missing": "mean", "dates": "number", "seed": 1}
    here, there = (read(tmp_path / name, **options) for name in ("t.xlsx", "t.csv"))
    assert here.names == there.names == ("price", "day", "kind=small", "open=false")
    assert here.clients == (1, 2, 3, 4, 0)
    np.testing.assert_allclose(here.features, there.features, atol=1e-9)
    np.testing.assert_allclose(here.labels, there.labels, atol=1e-9)
    left = " ".join(
        read(book, label="sold", client="shop", missing="drop").recipe.describe().split()
    )
    assert "day (dates" in left
    assert "1 of 60 rows" in left


def test_cells_of_a_workbook_that_are_missing_or_odd_are_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"missing values in 'price' \(row 6\)"):
        read(write_workbook(tmp_path / "t.xlsx"), label="sold", client="shop")
    with pytest.raises(InvalidInput, match="column 'price', row 6 holds 'oops' where numbers"):
        read(write_workbook(tmp_path / "t.xlsx", "oops"), label="sold", client="shop")


MISSING = "client,x,sex,label\n" + "\n".join(
    f"{'ab'[i % 2]},{'NA' if i in (3, 7) else i / 7},{'' if i == 5 else 'fm'[i % 3 == 0]},{'.' if i == 11 else i / 3}"
    for i in range(40)
)


def test_missing_values_are_named_dropped_or_filled(tmp_path):
    file = written(tmp_path, MISSING)
    with pytest.raises(InvalidInput) as caught:
        read(file)
    for part in (
        "'label' (row 11 (line 13))",
        "'x' (2 rows, the first is row 3 (line 5))",
        "'sex'",
        "--missing drop|mean|indicator",
    ):
        assert part in str(caught.value)
    dropped = read(file, missing="drop")
    assert len(dropped.features) == 36
    assert "4 of 40 rows with a missing value were dropped" in " ".join(
        dropped.recipe.describe().split()
    )
    mean = read(file, missing="mean")
    assert len(mean.features) == 39
    assert mean.names == ("x", "sex=m", "sex=missing")
    assert mean.recipe.filled == {"x": 2, "sex": 1}
    raw = read(file, missing="mean", scale="none")
    there = raw.features[:, 0] != raw.recipe.columns[0].fill
    assert np.count_nonzero(~there) == 2
    training = (raw.split == 0) & there
    assert raw.recipe.columns[0].fill == pytest.approx(raw.features[training, 0].mean())
    marked = read(file, missing="indicator", scale="none")
    assert marked.names == ("x", "x missing", "sex=m", "sex=missing")
    assert marked.features[:, 1].sum() == 2
    X, counts = marked.recipe.apply(pl.DataFrame({"x": ["NA", "1"], "sex": [None, "f"]}))
    assert X[:, 1].tolist() == [1, 0]
    assert counts.missing == {"x": 1, "sex": 1}


@pytest.mark.parametrize("word", ["", "NA", "n/a", "NaN", "nan", "NULL", "None", "na", " "])
def test_words_for_missing_values(tmp_path, word):
    text = (
        f"client,x,sex,label\na,1.5,f,{word}\nb,{word},m,2.5\nb,3.5,{word},1.5\n{word},3.5,f,1.5\n"
    )
    frame = read_file(written(tmp_path, text), names=["client"])
    assert frame.null_count().row(0)[1] == 1
    with pytest.raises(InvalidInput, match=r"missing values in 'client' .*'label' .*'x' .*'sex'"):
        read(written(tmp_path, text))


def test_dashes_are_missing_among_numbers_only(tmp_path):
    frame = read_file(written(tmp_path, "a,b,c,d\n1,-,?,.\n-,x,y,1\n?,y,-,2\n"))
    assert frame["a"].to_list() == [1, None, None]
    assert frame["b"].to_list() == ["-", "x", "y"]
    assert frame["d"].to_list() == [None, 1, 2]


def labelled(tmp_path, labels, **options):
    rows = "".join(f"{'ab'[i % 2]},{i / 7},{label}\n" for i, label in enumerate(labels))
    return read(written(tmp_path, "client,x,label\n" + rows), **options)


@pytest.mark.parametrize(
    ("labels", "task", "line"),
    [
        (
            [0, 1] * 10,
            "classification",
            "has 2 whole numbers, taken as classes: --task regression takes them as numbers",
        ),
        (
            [1, 2, 3, 4, 5] * 4,
            "regression",
            "has 5 whole numbers, taken as numbers: --task classification takes them as classes",
        ),
        (["a", "b", "c", "c"] * 5, "classification", "has 3 words, taken as classes"),
        (["true", "false"] * 10, "classification", "has 2 boolean values, taken as classes"),
        ([0.5, 1.0] * 10, "regression", "has numbers"),
    ],
)
def test_the_task_of_a_table(tmp_path, labels, task, line):
    federation = labelled(tmp_path, labels)
    assert federation.task == task
    assert federation.recipe.describe().splitlines()[0] == f"label 'label' {line}"


def test_the_task_can_be_said(tmp_path):
    stars = labelled(tmp_path, [1, 2, 3, 4, 5] * 4, task="classification")
    assert stars.classes == (1, 2, 3, 4, 5)
    assert "as requested" in stars.recipe.describe()
    assert labelled(tmp_path, [0, 1] * 10, task="regression").task == "regression"
    assert labelled(tmp_path, [0, 1, 2] * 10, classes=4).outputs == 4
    with pytest.raises(InvalidInput, match="task is 'regression' while label column 'label' holds"):
        labelled(tmp_path, ["a", "b"] * 10, task="regression")


def test_missing_labels_among_numbers_do_not_make_classes(tmp_path):
    labels = ["NA" if i % 9 == 0 else i / 7 for i in range(40)]
    with pytest.raises(InvalidInput, match=r"missing values in 'label' \(5 rows"):
        labelled(tmp_path, labels)
    assert labelled(tmp_path, labels, missing="drop").task == "regression"
    with pytest.raises(InvalidInput, match=r"column 'label', row 3 \(line 5\) holds 'oops'"):
        labelled(tmp_path, [*labels[:3], "oops", *labels[4:]], missing="drop")


@pytest.mark.parametrize("size", ["1e20", "1e60", "1" + "0" * 30])
def test_large_numbers_are_scaled(tmp_path, size):
    rows = "".join(f"{'ab'[i % 2]},{float(size) * (i % 7 + i / 9)!r},{i / 3}\n" for i in range(40))
    federation = read(written(tmp_path, "client,x,label\n" + rows))
    assert np.abs(federation.features).max() < 5
    whole = labelled(tmp_path, [f"{i}{size}".replace("e", "") for i in range(1, 21)])
    assert whole.task == "regression"
    assert np.isfinite(whole.labels).all()


@pytest.mark.parametrize(
    ("size", "options"), [("1e200", {}), ("1e160", {}), ("1e120", {"scale": "none"}), ("1e999", {})]
)
def test_numbers_that_are_too_large_are_refused_in_words(tmp_path, size, options):
    rows = "".join(f"{'ab'[i % 2]},{i}.5{size[1:]},{i / 3}\n" for i in range(1, 41))
    with pytest.raises(
        InvalidInput, match=r"column 'x', row \d+ \(line \d+\) holds .*: numbers may be at most"
    ):
        read(written(tmp_path, "client,x,label\n" + rows), **options)


def test_a_file_beside_tables_in_a_folder_is_not_a_table(tmp_path):
    for name in ("ann", "bob"):
        written(tmp_path, "x;label\n1,5;2\n2,5;3\n3,5;4,5\n", f"{name}.csv")
    written(tmp_path, "these are the tables of two clients", "README.txt")
    assert read(tmp_path).clients == ("ann", "bob")


def test_formats_without_columns_take_no_roles(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.eye(4), y=[0, 1, 1, 0], client=list("aabb"))
    with pytest.raises(
        InvalidInput, match="roles is given, which is for tables of columns: leave it out"
    ):
        read(tmp_path / "a.npz", roles={"x": "ignore"})
    assert not read(tmp_path / "a.npz", scale="none", intercept=False).intercept


def test_two_whole_numbers_are_classes_however_they_are_written(tmp_path):
    rows = "\n".join(f"{'ab'[i % 2]},{i / 7},{['0.0', '1.0'][i % 3 == 0]}" for i in range(40))
    federation = read(written(tmp_path, f"client,x,label\n{rows}"))
    assert federation.classes == (0, 1)
    assert str(federation.recipe).startswith(
        "label 'label' has 2 whole numbers, taken as classes: --task regression takes"
    )
    rows = rows.replace("1.0", "1.5")
    assert read(written(tmp_path, f"client,x,label\n{rows}")).classes is None


def test_floats_beyond_counting_are_no_whole_numbers(tmp_path):
    rows = "\n".join(f"{'ab'[i % 2]},{i / 7},{['1e20', '-2.5e20'][i % 3 == 0]}" for i in range(40))
    assert read(written(tmp_path, f"client,x,label\n{rows}")).classes is None
