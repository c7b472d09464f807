"""`python -m experiments.glyphs`: see experiments/README.md."""

from experiments.launch import main
from experiments.presets import GLYPHS

if __name__ == "__main__":
    main(GLYPHS)
