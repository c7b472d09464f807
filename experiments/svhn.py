"""`python -m experiments.svhn`: see experiments/README.md."""

from experiments.launch import main
from experiments.presets import SVHN

if __name__ == "__main__":
    main(SVHN)
