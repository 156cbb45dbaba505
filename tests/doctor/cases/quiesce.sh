# Healthy: our server as shipped, with page data over TCP on one host, and one with tenants for a network behind a gateway.
quiesce serve
quiesce serve --transport tcp
quiesce serve --host 10.0.0.1 --tenants tenants.toml --admin-key $ADMIN --prefill 2 --decode 2
