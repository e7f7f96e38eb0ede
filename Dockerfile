FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY rollout ./rollout
RUN python -m venv /opt/rollout && /opt/rollout/bin/pip install --no-cache-dir .

FROM python:3.13-slim
COPY --from=build /opt/rollout /opt/rollout
# a home of its own: known_hosts and kubeconfig are looked for there
RUN useradd --create-home --uid 65532 rollout
USER 65532
WORKDIR /home/rollout
ENTRYPOINT ["/opt/rollout/bin/rollout"]
CMD ["--help"]
