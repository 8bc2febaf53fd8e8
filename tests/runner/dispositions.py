"""Signal dispositions and mask of the processes that a test starts: the defaults, whatever those of its starter are."""

import signal


def default_in_children():
    """What has a handler here, even one that does nothing, has its default after exec, and this process goes on to
    ignore what it was told to ignore. Python itself resets in a child what only Python ignores."""
    for number in signal.valid_signals():
        if signal.getsignal(number) == signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
