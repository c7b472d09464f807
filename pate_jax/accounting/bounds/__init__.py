"""Upper bounds of privacy costs: those of the papers, and the worst cases proved in the docs."""
