"""The rules of the queue: pure, standard library only, no clock and no I/O. Instants are integer milliseconds, UTC."""
