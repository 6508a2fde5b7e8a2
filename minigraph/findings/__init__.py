"""The findings of check(), each a decision over the graph's data and over what its functions' texts tell."""
