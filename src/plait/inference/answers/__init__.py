"""Write predictions for files of any size: columns, formats, and a journal to resume from."""
