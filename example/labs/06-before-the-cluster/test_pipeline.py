"""Tests of pipeline.py; they need neither Ray nor a cluster."""

import tempfile
import unittest
from pathlib import Path

from pipeline import Sale, clean, load, transform


class PipelineTest(unittest.TestCase):
    def test_load_reads_each_line(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "sales.csv")
            file.write_text("1,north,1.20\n")
            self.assertEqual(load(file), [Sale(1, "north", "1.20")])

    def test_clean_takes_each_sale_once(self) -> None:
        sale = Sale(1, "north", "1.20")
        self.assertEqual(clean([sale, sale]), [sale])

    def test_transform_sums_up_a_shop(self) -> None:
        sales = [Sale(1, "north", "1.20"), Sale(2, "north", "0.30"), Sale(3, "west", "1.00")]
        self.assertEqual(transform(sales), {"north": 150, "west": 100})
