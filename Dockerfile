FROM python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

WORKDIR /srv/text-messages
COPY requirements.txt .
RUN pip install --no-cache-dir --require-hashes -r requirements.txt
COPY . .

RUN useradd --system text-messages
USER text-messages
ENV PORT=8000 PYTHONUNBUFFERED=1
EXPOSE 8000

HEALTHCHECK CMD ["python", "-c", "import os, urllib.request as u; e = os.environ; u.urlopen('http://127.0.0.1:' + e['PORT'] + e.get('SCRIPT_NAME', '') + '/healthz', timeout=10)"]
CMD ["gunicorn", "app:create_app()"]
