# The public Ray image and debugpy. Built by bootstrap/sources/upstream.py.
ARG BASE
FROM $BASE AS build
# The machine's own certificates, for registries behind a company's proxy; they stay in this stage.
COPY ca-certificates.crt /etc/ssl/certs/machine.crt
ARG PIP_INDEX_URL
COPY ray.txt /tmp/
RUN sed -n '/^debugpy==/,/[^\\]$/p' /tmp/ray.txt > /tmp/debugpy.txt \
    && if [ -s /etc/ssl/certs/machine.crt ]; then export PIP_CERT=/etc/ssl/certs/machine.crt; fi \
    && pip download --no-cache-dir --disable-pip-version-check --no-input --progress-bar off \
        --no-deps --require-hashes --only-binary :all: --requirement /tmp/debugpy.txt --dest /tmp/wheels

FROM $BASE
COPY --from=build /tmp/wheels /usr/share/rayside/wheels
RUN pip install --no-cache-dir --disable-pip-version-check --no-input --no-index --no-deps \
        /usr/share/rayside/wheels/*.whl
# Python 3.12's post-mortem shows the user's frames only without sys.monitoring, and the validation
# only prints a warning about frozen modules into the job's log.
ENV PYDEVD_USE_SYS_MONITORING=0 PYDEVD_DISABLE_FILE_VALIDATION=1
