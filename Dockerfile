# `pate`, with Dask for workers in containers. For NVIDIA GPUs: docker build --build-arg EXTRAS=cluster,cuda12 .
FROM python:3.11.7-slim-bookworm
ARG EXTRAS=cluster
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY pate_jax ./pate_jax
RUN python -m pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]" \
    && rm -rf /build \
    && useradd --create-home --uid 1000 pate
USER pate
WORKDIR /home/pate
CMD ["pate", "--help"]
