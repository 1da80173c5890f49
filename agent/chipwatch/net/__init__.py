"""Network helpers: sockets with limits, and a clock checked against a service's."""
