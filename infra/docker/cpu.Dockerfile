# ace_ray with vLLM for CPUs: smoke tests, small models, and head nodes.
#
#   docker build -f infra/docker/cpu.Dockerfile -t ace-ray:cpu .
#
# The base is named by digest: what a tag points to may change. This prints a tag's digest, for
# --build-arg PYTHON_IMAGE=python:TAG@DIGEST:
#   docker buildx imagetools inspect python:TAG --format '{{.Manifest.Digest}}'
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d

FROM ${PYTHON_IMAGE} AS packages
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /build
# Options of pip for torch's own build for CPUs, which saves gigabytes of CUDA libraries.
ARG TORCH_OPTIONS=""
COPY requirements/torch.txt requirements/
# hadolint ignore=SC2086
RUN pip install --no-deps --only-binary=:all: ${TORCH_OPTIONS} -r requirements/torch.txt
COPY requirements/cpu.txt requirements/torch-cuda.txt requirements/
RUN pip install --no-deps --only-binary=:all: --require-hashes -r requirements/cpu.txt \
    && if pip show torch | grep -q nvidia-; then \
       pip install --no-deps --only-binary=:all: --require-hashes -r requirements/torch-cuda.txt; fi
# Last: it changes most often.
COPY pyproject.toml README.md LICENSE ./
COPY ace_ray ace_ray
RUN pip install --no-deps --no-build-isolation .

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="ace-ray" \
      org.opencontainers.image.description="Batch evaluation of LLM tool use on Ray and vLLM, CPU flavour" \
      org.opencontainers.image.licenses="Apache-2.0"
# g++: vLLM compiles for the machine it meets. procps, rsync, ssh, wget: what KubeRay's hooks and
# Ray's cluster launcher call. Debian keeps no old versions that could be pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
       ca-certificates g++ libnuma1 openssh-client procps rsync wget \
    && rm -rf /var/lib/apt/lists/* \
    # A login shell, which KubeRay can be told to use, sets a PATH of its own.
    && echo "PATH=/opt/venv/bin:\$PATH" > /etc/profile.d/ace-ray.sh \
    && useradd --create-home --uid 1000 --shell /bin/bash ray \
    && install -d -o ray -g ray /cache
COPY --from=packages /opt/venv /opt/venv
WORKDIR /app
COPY jobs jobs
COPY configs configs
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    ACE_RAY_CACHE=/cache/ace_ray \
    HF_HOME=/cache/huggingface
# ray, as a number for runAsNonRoot
USER 1000
CMD ["ace-ray", "--help"]
