# The public Ray image and debugpy. Built by bootstrap/sources/upstream.py.
ARG BASE
FROM $BASE AS build
# The machine's own certificates, for registries behind a company's proxy; they stay in this stage.
COPY ca-certificates.crt /etc/ssl/certs/machine.crt
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
COPY ray.txt /tmp/
RUN sed -n '/^debugpy==/,/[^\\]$/p' /tmp/ray.txt > /tmp/debugpy.txt \
    && if [ -s /etc/ssl/certs/machine.crt ]; then export PIP_CERT=/etc/ssl/certs/machine.crt; fi \
    && pip download --no-cache-dir --disable-pip-version-check --no-input --progress-bar off \
        --no-deps --require-hashes --only-binary :all: --requirement /tmp/debugpy.txt --dest /tmp/wheels

FROM $BASE
COPY --from=build /tmp/wheels /usr/share/rayside/wheels
RUN pip install --no-cache-dir --disable-pip-version-check --no-input --no-index --no-deps \
        /usr/share/rayside/wheels/*.whl
# The debugger of a plain `breakpoint()` asks for a proof, too (rayside/worker/start.py).
COPY rayside /opt/rayside/rayside
COPY rayside.pth /opt/rayside/
RUN cp /opt/rayside/rayside.pth "$(python3 -c 'import site; print(site.getsitepackages()[0])')/"
ENV RAYSIDE_START=/opt/rayside/rayside/worker/start.py
# As in the other Dockerfile: nothing is reported, and no cloud is asked.
ENV RAY_USAGE_STATS_ENABLED=0 RAY_USAGE_STATS_REPORT_URL=http://localhost:9
RUN python3 -c 'import os; os.symlink("ray_bootstrap_config.yaml", "/home/ray/ray_bootstrap_config.yaml")'
