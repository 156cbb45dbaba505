# Mooncake asks nobody who they are, and this version of it was never verified.
quiesce serve --transport mooncake --trust-network --trust-transport
