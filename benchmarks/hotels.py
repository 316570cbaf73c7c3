"""The Expedia log as a data set for `quality.py`: hotel searches, graded by bookings and clicks.

    python benchmarks/hotels.py expedia.csv hotels
    python benchmarks/quality.py hotels --seeds 3 --out results

The file is the training data of the Expedia competition (personalised sort), or a part of it. A
booked hotel has grade 4, a clicked one grade 1. Positions, ids and what was paid are left out;
missing values stay missing. The five folds have whole searches.
"""

import argparse
from pathlib import Path

import polars as pl

from twinrank import Dataset

NOT_FEATURES = {
    *("srch_id", "date_time", "position", "random_bool", "click_bool", "booking_bool"),
    *("gross_bookings_usd", "prop_id", "site_id", "visitor_location_country_id"),
    *("prop_country_id", "srch_destination_id"),
}
FOLDS = 5


def read(path: Path) -> Dataset:
    """The searches with their grades."""
    frame = pl.read_csv(path, null_values=["NULL", ""], infer_schema_length=None)
    names = [name for name in frame.columns if name not in NOT_FEATURES]
    frame = frame.with_columns(
        pl.col(names).cast(pl.Float32),
        grade=pl.max_horizontal(pl.col("booking_bool") * 4, pl.col("click_bool")),
    )
    return Dataset.from_frame(
        frame.select("srch_id", "grade", *names),
        query="srch_id",
        label="grade",
        non_finite="keep",
    )


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("file", type=Path, help="the log")
    options.add_argument("folder", type=Path, help="gets Fold1 to Fold5")
    given = options.parse_args()
    data = read(given.file)
    for fold in data.folds(FOLDS):
        folder = given.folder / fold.name
        folder.mkdir(parents=True, exist_ok=True)
        for name, part in zip(("train", "vali", "test"), fold, strict=True):
            assert part is not None
            part.save(folder / f"{name}.txt")
    print(f"{given.folder}: {data}")


if __name__ == "__main__":
    main()
