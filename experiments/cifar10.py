"""`python -m experiments.cifar10`: see experiments/README.md."""

from experiments.launch import main
from experiments.presets import CIFAR10

if __name__ == "__main__":
    main(CIFAR10)
