"""A service that runs a graph with an approval step behind HTTP; docs/embedding.md explains it."""
