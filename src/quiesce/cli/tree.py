"""The tree of settings: which rooms' slices each command offers."""

from __future__ import annotations

from quiesce.cli.fields import Slice, settings_of
from quiesce.cli.serve_settings import ServeSettings
from quiesce.router.settings import RouterSettings
from quiesce.worker.settings import WorkerSettings

WORKER = (Slice(WorkerSettings, frozenset({"role"})),)
UNPAIRED_WORKER = (Slice(WorkerSettings, frozenset({"role", "peer", "workers_file", "workers_srv", "dns_server"})),)
ROUTER = (Slice(RouterSettings),)
_TLS = frozenset({"tls_cert", "tls_key", "tls_ca", "insecure", "data_tls"})
_FOUND = frozenset({"workers_file", "workers_srv", "dns_server", "control_listen", "register", "advertise"})
BETWEEN_HOSTS = _FOUND | _TLS
"""What means nothing where everything is on one host."""
SERVE = (
    Slice(ServeSettings),
    Slice(WorkerSettings, frozenset({"role", "name", "listen", "peer", "pool_tokens"}) | BETWEEN_HOSTS),
    Slice(RouterSettings, frozenset({"worker"}) | BETWEEN_HOSTS),
)

EVERY_NAME = frozenset(settings_of((*SERVE, *WORKER, *ROUTER)))
"""Field names of all commands: a file or environment that several commands share may hold any of them."""
