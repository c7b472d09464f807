"""The checks of `pate verify`, which other people can make."""
