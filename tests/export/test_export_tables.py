"""Groups, footprints, results, vectors and pairs as files, opened by the readers that their users have."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from pathlib import Path

import faiss
import geopandas
import numpy as np
import pandas
import pyarrow.parquet
import pytest
import shapely
from PIL import Image

from anneal.archive.catalog import open_archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.groups import give_name
from anneal.campaign.rounds import FROZEN, Round
from anneal.errors import UsageError
from anneal.export import geo, groups, images, pairs, tables, vectors
from anneal.export.images import Catalogue
from anneal.method.neighbours import build_index
from anneal.search import find_similar
from anneal.settings import Settings
from export.located import NAMED, footprint

# -- groups --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_every_image_stands_with_its_group(
    campaign: Campaign, catalogue: Catalogue, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"groups{suffix}"
    assert tables.write(file, groups.GROUPS, groups.group_rows(catalogue, campaign.images)) == 40
    readers = {".csv": pandas.read_csv, ".parquet": pandas.read_parquet}
    frame = pandas.read_json(file, lines=True) if suffix == ".jsonl" else readers[suffix](file)
    assert list(frame.columns) == list(groups.GROUPS)
    assert frame.path.tolist() == list(campaign.archive().paths)
    settled = frame[frame.how == "settled"]
    assert len(settled) == 24
    assert (settled.score == 1).all()
    assert (settled["size"] == 3).all()
    assert settled.name.iloc[:3].tolist() == [NAMED] * 3
    assert settled.group.tolist() == [first for first in range(0, 40, 5) for _ in range(3)]
    predicted = frame[frame.how == "predicted"]
    assert len(predicted) == 16
    assert predicted.score.between(0, 1).all()


def test_less_sure_predictions_are_left_out(campaign: Campaign, tmp_path: Path) -> None:
    catalogue = Catalogue(campaign.archive(), Catalogue.of(campaign).classes.at_least(0.9999))
    file = tmp_path / "classes.csv"
    tables.write(file, images.CLASSES, images.footprint_rows(catalogue, campaign.images))
    frame = pandas.read_csv(file)
    assert frame.group.notna().sum() == 24
    assert set(frame.group.dropna()) == {NAMED, *(str(first) for first in range(5, 40, 5))}
    assert frame[frame.group.isna()].score.isna().all()


def test_groups_become_folders_of_links_or_copies(campaign: Campaign, tmp_path: Path) -> None:
    sure = Catalogue(campaign.archive(), Catalogue.of(campaign).classes.at_least(1))
    for copy in (False, True):
        folder = tmp_path / f"copy-{copy}"
        groups.link_images(sure, campaign.images.tolist(), folder, copy)
        assert sorted(one.name for one in folder.iterdir()) == sorted(
            [NAMED, "unplaced", *(f"group {first}" for first in range(5, 40, 5))]
        )
        (first, *_) = sorted((folder / NAMED).iterdir())
        assert first.is_symlink() != copy
        assert first.read_bytes() == campaign.archive().file(0).read_bytes()
        assert len(list((folder / "unplaced").iterdir())) == 16
        with pytest.raises(UsageError, match="is there already"):
            groups.link_images(sure, [0], folder)


def test_any_name_makes_a_folder(campaign: Campaign, tmp_path: Path, learnt: Path) -> None:
    import shutil

    with closing(Campaign.open(shutil.copytree(learnt, tmp_path / "c"))) as copy:
        for image, name in (
            (0, "../up"),
            (5, "a/b"),
            (10, "A\\B"),
            (15, "unplaced"),
            (20, "..."),
            (25, "CON?"),
        ):
            give_name(copy, [image], name)
        groups.link_images(Catalogue.of(copy), copy.images.tolist(), tmp_path / "out")
    assert {path.parent for path in (tmp_path / "out").rglob("*") if path.is_symlink()} == {
        path for path in (tmp_path / "out").iterdir() if path.is_dir()
    }
    assert len(list((tmp_path / "out").iterdir())) == 8


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"name it \.csv, \.jsonl or \.parquet"):
        tables.write(tmp_path / "groups.xlsx", groups.GROUPS, [])
    with pytest.raises(UsageError, match=r"name it \.geojson, \.gpkg or \.parquet"):
        geo.write(tmp_path / "map.shp", images.CLASSES, [])


def test_a_library_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"needs pyarrow: pip install 'anneal\[geo\]'"):
        tables.write(tmp_path / "groups.parquet", groups.GROUPS, [])


# -- maps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".geojson", ".gpkg", ".parquet"])
def test_footprints_are_opened_by_geopandas(
    campaign: Campaign, catalogue: Catalogue, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"map{suffix}"
    rows = images.footprint_rows(catalogue, campaign.images)
    assert geo.write(file, images.CLASSES, rows) == 39
    frame = geopandas.read_parquet(file) if suffix == ".parquet" else geopandas.read_file(file)
    assert frame.crs.to_epsg() in (4326, None)
    assert frame.crs.is_geographic
    assert frame.path.tolist() == list(campaign.archive().paths[:39])
    assert frame.group.iloc[0] == NAMED
    assert frame.how.value_counts().to_dict() == {"settled": 24, "predicted": 15}
    assert frame.score.between(0, 1).all()
    shape = frame.geometry.iloc[9]
    assert shape.is_valid
    assert shape.exterior.is_ccw
    assert {(x, y) for x, y in shape.exterior.coords} == {(x, y) for x, y in footprint(9)}
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name]


def test_results_have_rank_file_group_and_footprint(
    campaign: Campaign, catalogue: Catalogue, tmp_path: Path
) -> None:
    every = find_similar(campaign, [campaign.archive().paths[0], campaign.archive().paths[20]], 5)
    blocks = list(images.result_rows(catalogue, every))
    assert tables.write(tmp_path / "hits.csv", images.RESULTS, blocks) == 10
    frame = pandas.read_csv(tmp_path / "hits.csv")
    assert frame["rank"].tolist() == [1, 2, 3, 4, 5] * 2
    assert all(Path(file).is_file() and Path(file).is_absolute() for file in frame.file)
    assert frame.score.tolist() == pytest.approx(every[0].scores + every[1].scores, abs=1e-5)
    (first, *_) = geo.as_text(blocks)
    shape = shapely.from_wkt(first["footprint"][0])
    assert {(x, y) for x, y in shape.exterior.coords} == {(x, y) for x, y in footprint(every[0].ids[0])}
    located = geo.write(tmp_path / "hits.geojson", images.RESULTS, blocks)
    assert len(geopandas.read_file(tmp_path / "hits.geojson")) == located


def test_an_archive_without_footprints_makes_an_empty_map(tmp_path: Path, catalogue: Catalogue) -> None:
    nothing = [{**block, "footprint": [()] * 40} for block in images.footprint_rows(catalogue, range(40))]
    assert geo.write(tmp_path / "map.geojson", images.CLASSES, nothing) == 0
    assert json.loads((tmp_path / "map.geojson").read_text()) == {"type": "FeatureCollection", "features": []}
    with pytest.raises(UsageError, match="No image has a footprint"):
        geo.write(tmp_path / "map.gpkg", images.CLASSES, nothing)


# -- vectors and pairs ---------------------------------------------------------------------------------


def test_vectors_are_opened_by_numpy_and_pyarrow(
    campaign: Campaign, catalogue: Catalogue, tmp_path: Path
) -> None:
    some = campaign.images[1::2]
    space = campaign.rounds.vectors()
    assert vectors.write_vectors(catalogue, space, some, tmp_path) == 20
    rows = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    assert np.array_equal(rows, space[some])
    table = pyarrow.parquet.read_table(tmp_path / "vectors.parquet")
    assert table["id"].to_pylist() == some.tolist()
    assert np.array_equal(np.stack(table["vector"].to_numpy()), rows)
    assert pandas.read_parquet(tmp_path / "vectors.parquet").path.iloc[0] == campaign.archive().paths[1]


def test_the_index_finds_what_search_finds(campaign: Campaign, tmp_path: Path) -> None:
    assert vectors.write_index(campaign, tmp_path / "index.faiss") == "exact"
    index = faiss.read_index(str(tmp_path / "index.faiss"))
    (found,) = find_similar(campaign, [campaign.archive().paths[7]], 5)
    _, ids = index.search(np.asarray(campaign.rounds.vectors()[[7]]), 6)
    assert [i for i in ids[0].tolist() if i != 7] == found.ids
    space = np.array(campaign.rounds.vectors())
    files = campaign.rounds.files(0)
    files.save_index(build_index(space))
    try:
        fresh = Campaign.open(campaign.folder)
        assert vectors.write_index(fresh, tmp_path / "large.faiss") == "inverted file"
        fresh.close()
    finally:
        (files.folder / "index.faiss").unlink()
    assert faiss.read_index(str(tmp_path / "large.faiss")).ntotal == 40


def test_pairs_tell_where_they_come_from(campaign: Campaign, tmp_path: Path) -> None:
    archive = campaign.archive()
    rows = campaign.log().standing()
    assert tables.write(tmp_path / "a.csv", pairs.PAIRS, pairs.pair_rows(campaign, archive, False)) == 24
    tables.write(tmp_path / "b.parquet", pairs.PAIRS, pairs.pair_rows(campaign, archive, True))
    frame = pandas.read_parquet(tmp_path / "b.parquet")
    given = frame[frame.source != "implied"]
    assert given.answered.tolist() == [row.answered for row in rows]
    assert given.annotator.value_counts().to_dict() == {"me": 16, "ann": 8}
    implied = frame[frame.source == "implied"]
    known = campaign.known().among(np.arange(40), np.arange(40))
    settled = np.triu((known == 1) | (known == 2), 1).sum()
    learnt_from = int((given.source == "given").sum())
    assert len(implied) == settled - learnt_from
    assert not set(zip(implied.path_a, implied.path_b, strict=True)) & set(
        zip(given[given.source == "given"].path_a, given[given.source == "given"].path_b, strict=True)
    )


# -- names that are not UTF-8 --------------------------------------------------------------------------


def test_a_file_name_that_is_not_utf8_breaks_no_export(tmp_path: Path) -> None:
    for name in (b"caf\xe9.png", "Flüße, 田.png".encode(), b"plain.png", b"odd\nline.png"):
        folder = os.fsencode(tmp_path / "in")
        os.makedirs(folder, exist_ok=True)
        Image.new("RGB", (8, 8), (len(name), 0, 0)).save(tmp_path / "x.png")
        os.rename(tmp_path / "x.png", os.path.join(folder, name))
    archive = open_archive(tmp_path / "in", 8, tmp_path / "cache")
    space = np.eye(4, 8, dtype=np.float32)
    Round.of(tmp_path / "c", FROZEN).save_space(space, np.empty((0, 6), dtype=np.int64))
    with closing(Campaign.create(tmp_path / "c", archive, Settings(px=8), np.arange(4))) as campaign:
        campaign.answer(0, 1, 1)
        catalogue = Catalogue.of(campaign)
        tables.write(tmp_path / "groups.csv", groups.GROUPS, groups.group_rows(catalogue, range(4)))
        tables.write(tmp_path / "groups.parquet", groups.GROUPS, groups.group_rows(catalogue, range(4)))
        vectors.write_vectors(catalogue, space, np.arange(4), tmp_path)
        groups.link_images(catalogue, [0, 1, 2, 3], tmp_path / "links")
    names = {"Flüße, 田.png", "caf\\xe9.png", "odd\nline.png", "plain.png"}
    assert set(pandas.read_csv(tmp_path / "groups.csv").path) == names
    assert set(pandas.read_parquet(tmp_path / "groups.parquet").path) == names
    assert all(path.exists() for path in (tmp_path / "links").rglob("*"))
