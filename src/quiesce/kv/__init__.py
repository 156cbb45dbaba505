"""Pages and who owns them. `storage` alone touches pool memory as memory."""
