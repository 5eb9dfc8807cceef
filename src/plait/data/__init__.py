"""Files become data sets of tokens: read, checked, tokenised once, cut into batches."""
