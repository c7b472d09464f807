"""`python -m experiments.adult`: see experiments/README.md."""

from experiments.launch import main
from experiments.presets import ADULT

if __name__ == "__main__":
    main(ADULT)
