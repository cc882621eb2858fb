"""`python -m turnwise.gateway`: the gateway loop, alone."""

from turnwise.gateway.server import main

main()
