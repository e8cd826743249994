"""What login side and jobs share: of the standard library alone, on Python 3.10, since jobs run it."""
