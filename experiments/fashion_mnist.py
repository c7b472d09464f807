"""`python -m experiments.fashion_mnist`: see experiments/README.md."""

from experiments.launch import main
from experiments.presets import FASHION_MNIST

if __name__ == "__main__":
    main(FASHION_MNIST)
