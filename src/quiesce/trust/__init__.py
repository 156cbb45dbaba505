"""Who is who between hosts: certificates, what they permit, and TLS contexts made of them."""
