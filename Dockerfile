# The program, and what it starts: Ansible, and `ssh` for jump hosts and to read its configuration.
# The digest is the one that docker-library/repo-info publishes for this tag: an index of all architectures.
FROM debian:13.7-slim@sha256:a99cfc517144bc59b1978475ec53b46ecabec7e43635402ee5b77cc54cd1b20a AS base
# Without versions: Debian's stable release changes only to mend, and its mirrors keep the newest alone.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates openssh-client python3 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/apt /var/log/dpkg.log /var/log/alternatives.log

FROM base AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
# What the package needs comes before the package: it changes seldom, and this step takes the longest.
COPY .ci/build.lock .ci/requirements.lock ./
RUN python3 -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r build.lock \
    && python3 -m venv --without-pip /opt/rollout \
    && /opt/build/bin/pip --python /opt/rollout/bin/python install --no-cache-dir --require-hashes --only-binary :all: \
        -r requirements.lock

FROM build AS package
COPY pyproject.toml README.md LICENSE ./
COPY playbooks ./playbooks
COPY rollout ./rollout
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/build/bin/pip --python /opt/rollout/bin/python install --no-cache-dir --no-deps --no-index dist/*.whl

FROM base
LABEL org.opencontainers.image.title="node-rollout" \
    org.opencontainers.image.description="Reboot the Flatcar and CoreOS hosts of a Kubernetes cluster to apply their pending OS updates" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.base.name="docker.io/library/debian:13.7-slim"
# A home of its own: known_hosts and kubeconfig are looked for there.
RUN useradd --create-home --uid 65532 --user-group rollout
COPY --from=package /opt/rollout /opt/rollout
ENV PATH=/opt/rollout/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# Numbers, so that a cluster can see that it is not root.
USER 65532:65532
WORKDIR /home/rollout
ENTRYPOINT ["/opt/rollout/bin/rollout"]
CMD ["--help"]
