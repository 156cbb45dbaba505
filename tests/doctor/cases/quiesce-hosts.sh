# Pages between hosts: in plain although there are certificates, in plain without, on one host, and encrypted.
quiesce decode --name decode-0 --listen tcp://10.0.0.1:9002 --transport tcp --data-host 10.0.0.1 --tls-cert a.pem --data-tls off
quiesce decode --name decode-2 --listen tcp://10.0.0.4:9002 --transport tcp --insecure
quiesce decode --name decode-3 --listen tcp://127.0.0.1:9002 --transport tcp --insecure
quiesce decode --name decode-1 --listen tcp://10.0.0.3:9002 --transport tcp --data-host 10.0.0.3 --tls-cert b.pem
