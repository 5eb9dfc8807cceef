"""The study of four published reports: rerun their rows with plait and test their claims.

python -m reproduction run a/2 --seeds 3 --data ~/course    train rows, keep a record of each run
python -m reproduction page                                 write results.md and its pictures
"""
