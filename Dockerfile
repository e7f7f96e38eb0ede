# The program, and what it starts: Ansible, and `ssh` for jump hosts and to read its configuration.
# With --build-arg EXTRAS=[lab] also the simulated cluster.
FROM python:3.13-slim AS build
ARG EXTRAS=""
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY playbooks ./playbooks
COPY rollout ./rollout
RUN python -m venv /opt/rollout && /opt/rollout/bin/pip install --no-cache-dir ".${EXTRAS}"

FROM python:3.13-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openssh-client \
    && rm -rf /var/lib/apt/lists/*
# a home of its own: known_hosts and kubeconfig are looked for there
RUN useradd --create-home --uid 65532 rollout
COPY --from=build /opt/rollout /opt/rollout
ENV PATH=/opt/rollout/bin:$PATH
# a number, so that a cluster can see that it is not root
USER 65532
WORKDIR /home/rollout
ENTRYPOINT ["/opt/rollout/bin/rollout"]
CMD ["--help"]
