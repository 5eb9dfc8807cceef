"""The page's sections: each a function that returns lines."""
