//! One thread's event loop: sockets on mio, a timer wheel, local tasks, a mailbox, in-process pipes.
