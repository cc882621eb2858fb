"""`python -m turnwise.gateway`: the gateway loop, alone."""

from turnwise.gateway.server import main

if __name__ == "__main__":
    main()
