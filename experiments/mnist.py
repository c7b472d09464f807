"""`python -m experiments.mnist`: see experiments/README.md."""

from experiments.launch import main
from experiments.presets import MNIST

if __name__ == "__main__":
    main(MNIST)
