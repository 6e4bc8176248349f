# Ferry in a container, CPU by default:   docker build -t ferry .
# on NVIDIA GPUs:                         docker build -t ferry:gpu --build-arg FLAVOUR=gpu .
# with TF Text, or decision forests:      FLAVOUR=text, FLAVOUR=forests
# with the oldest TensorFlow, and forests: FLAVOUR=tensorflow-2.19

# For builds that give the same tomorrow, name these by digest: python@sha256:...
ARG BUILD_BASE=python:3.11
ARG BASE=python:3.11-slim

# The image that is not slim has a C compiler, for the C sources in app/, and strip.
FROM ${BUILD_BASE} AS build
# A lock file of requirements/, one of your own, too: it names TensorFlow's version and what else is installed.
ARG FLAVOUR=serve
WORKDIR /src
RUN python -m venv /venv
COPY requirements/${FLAVOUR}.txt requirements/
# Nothing here needs TensorFlow's C++ headers or its bindings for building MLIR. Symbols are for debuggers: names
# that libraries look up among each other, which operations of others need too, are a table of their own and stay.
RUN /venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements/${FLAVOUR}.txt \
 && cd /venv/lib/python3.11/site-packages/tensorflow \
 && rm -rf include compiler/mlir/stablehlo/stablehlo_extension.so \
 && find . -name '*.so*' -exec strip --strip-unneeded {} +
COPY requirements/sbom.txt requirements/
RUN python -m venv --without-pip /sbom \
 && /venv/bin/pip --python /sbom/bin/python install --no-cache-dir --no-deps --require-hashes -r requirements/sbom.txt
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY app app
# In a separate root, so that a change of Ferry does not change the large layer of its dependencies.
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation --root /ferry .
# Keras (which TensorFlow imports if it is there) and what only Keras needs, what only Python code that makes operations
# needs, and what built Ferry. SavedModels are graphs: they run without, also with libraries of operations, of which only
# the shared libraries are loaded. tests/deploy/image/check_models.py tries it.
RUN /venv/bin/pip uninstall --yes keras h5py namex optree libclang \
      hatchling editables pathspec pluggy tomlkit trove-classifiers wheel setuptools pip
# The list of what is left, checked against the schema of CycloneDX.
RUN mkdir -p /ferry/usr/share/ferry \
 && PYTHONPATH=/ferry/venv/lib/python3.11/site-packages /sbom/bin/cyclonedx-py environment --pyproject pyproject.toml \
      --mc-type application --spec-version 1.6 --output-format JSON --output-reproducible --validate \
      --output-file /ferry/usr/share/ferry/sbom.cdx.json /venv

FROM ${BASE}
# Nothing is installed here any more. Where the base has its standard library without bytecode, as the official one does,
# each start would compile it anew, since the user may not write it.
RUN groupadd --gid 10001 ferry \
 && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin ferry \
 && rm -rf /usr/local/lib/python3.11/site-packages/* /usr/local/lib/python3.11/ensurepip /usr/local/bin/pip* \
 && python -c "import compileall, re, sysconfig; compileall.compile_dir(sysconfig.get_path('stdlib'), quiet=2, rx=re.compile('/(test|idlelib|lib2to3|tkinter|turtledemo)/'))"
COPY --from=build /venv /venv
COPY --from=build /ferry /
# A volume mounted on /models replaces these models.
COPY models /models
# Without the NVIDIA line the container runtime gives a GPU container no CUDA driver library; CPUs ignore it.
ENV PATH=/venv/bin:$PATH \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    FERRY_MODELS=/models \
    FERRY_REST_PORT=8501
WORKDIR /tmp
USER 10001:10001
EXPOSE 8500 8501
HEALTHCHECK --interval=10s --timeout=5s --start-period=2m --retries=3 CMD ["python", "-m", "app.server.health_check"]
# Exec form: `ferry` is process 1 and gets SIGTERM itself.
ENTRYPOINT ["ferry"]
CMD ["serve"]
# Last, since they differ from build to build.
ARG BASE
ARG SOURCE=unknown
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="Ferry" \
      org.opencontainers.image.description="Model serving for TensorFlow SavedModels: TensorFlow Serving's protocols, dynamic batching by default." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE}"
