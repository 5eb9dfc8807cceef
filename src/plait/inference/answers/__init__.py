"""Rows of any number become files of answers: columns, formats, a journal to go on from."""
