# A transport that a package offers.
quiesce serve --transport pigeon
