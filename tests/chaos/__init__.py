"""The local network, its real processes killed, stopped, starved and lied to; what must hold is checked each time."""
