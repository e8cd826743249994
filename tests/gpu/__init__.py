"""Everything of hpcddp that touches CUDA, tried on the GPUs of a machine or on a stand-in for them.

`python -m tests.gpu` runs it on GPUs, plain pytest on the stand-in (standin.py), where bounds on figures are not judged. The mark
of each test names the files that it covers, and what the stand-in cannot show.
"""
