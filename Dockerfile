# Ferry in a container, CPU by default:   docker build -t ferry .
# on NVIDIA GPUs:                         docker build -t ferry:gpu --build-arg FLAVOUR=gpu .

# The image that is not slim has a C compiler, for app/codecs/json/numbers.c.
FROM python:3.11 AS build
# A lock file of requirements/: serve (CPU) or gpu (CUDA from Python wheels, no CUDA base image).
ARG FLAVOUR=serve
WORKDIR /src
RUN python -m venv /venv
COPY requirements/${FLAVOUR}.txt requirements/
# Nothing here needs TensorFlow's C++ headers, a fifth of its size.
RUN /venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements/${FLAVOUR}.txt \
 && rm -rf /venv/lib/python3.11/site-packages/tensorflow/include
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY app app
# In a separate root, so that a change of Ferry does not change the large layer of its dependencies.
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation --root /ferry .

FROM python:3.11-slim
RUN groupadd --gid 10001 ferry \
 && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin ferry
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
# http.client rather than urllib: a proxy in the environment must not be asked about this container's health.
HEALTHCHECK --interval=10s --timeout=5s --start-period=2m --retries=3 CMD ["python", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['FERRY_REST_PORT']), timeout=4); c.request('GET', '/readyz'); sys.exit(c.getresponse().status != 200)"]
# Exec form: `ferry` is process 1 and gets SIGTERM itself.
ENTRYPOINT ["ferry"]
CMD ["serve"]
