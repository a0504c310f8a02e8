# Debian with what scripts/setup.sh installs, and nothing else, for amd64 and arm64.
#
#   docker build -t ladder . && docker run --rm -it -v "$PWD:/ladder" ladder
ARG DEBIAN=bookworm
FROM debian:${DEBIAN}-slim
COPY scripts/setup.sh /tmp/setup.sh
RUN bash /tmp/setup.sh && rm -rf /tmp/setup.sh /var/lib/apt/lists/*
# Open MPI starts processes of root, who everybody is in a container, only if told so.
ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
WORKDIR /ladder
